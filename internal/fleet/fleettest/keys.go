package fleettest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
)

// Authority signs certificates of servers.
type Authority struct {
	File string // its own certificate, in PEM

	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes one that nobody knows.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "an authority of a test"}, IsCA: true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
	}
	a.File, a.key = a.make(a.cert, a.cert, nil)
	return a
}

// TLS is the part of a server's configuration that has a certificate for an address, valid
// for so long from now on, which may be negative.
func (a *Authority) TLS(address string, valid time.Duration) string {
	a.t.Helper()
	cert, key := a.make(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: address}, IPAddresses: []net.IP{net.ParseIP(address)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(valid),
	}, a.cert, a.key)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return fmt.Sprintf("tls { cert_file: %q, key_file: %q }\n", cert, a.write("EC PRIVATE KEY", der))
}

// make makes a key and its certificate; without a signer's key it signs itself.
func (a *Authority) make(of, by *x509.Certificate, signer *ecdsa.PrivateKey) (file string, key *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, of, by, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write("CERTIFICATE", der), key
}

func (a *Authority) write(kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.t.TempDir(), "pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// Operator signs an account, and that its users, as nsc does.
type Operator struct {
	Config string // the part of a server's configuration that has both

	t       testing.TB
	account nkeys.KeyPair
}

// NewOperator makes one with an account.
func NewOperator(t testing.TB) *Operator {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	operator, err := nkeys.CreateOperator()
	must(err)
	account, err := nkeys.CreateAccount()
	must(err)
	public, err := operator.PublicKey()
	must(err)
	signed, err := jwt.NewOperatorClaims(public).Encode(operator)
	must(err)
	id, err := account.PublicKey()
	must(err)
	ofAccount, err := jwt.NewAccountClaims(id).Encode(operator)
	must(err)
	return &Operator{
		Config: fmt.Sprintf("operator: %q\nresolver: MEMORY\nresolver_preload { %s: %q }\n", signed, id, ofAccount), t: t,
		account: account,
	}
}

// Creds are the content of a creds file of a user, valid for so long from now on, which
// may be negative.
func (o *Operator) Creds(valid time.Duration) []byte {
	o.t.Helper()
	user, err := nkeys.CreateUser()
	if err != nil {
		o.t.Fatal(err)
	}
	public, _ := user.PublicKey()
	seed, _ := user.Seed()
	claims := jwt.NewUserClaims(public)
	claims.Expires = time.Now().Add(valid).Unix()
	signed, err := claims.Encode(o.account)
	if err != nil {
		o.t.Fatal(err)
	}
	text, err := jwt.FormatUserConfig(signed, seed)
	if err != nil {
		o.t.Fatal(err)
	}
	return text
}
