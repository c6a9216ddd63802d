package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// config makes a set of the text of a configuration file.
func config(t *testing.T, text string) *Set {
	t.Helper()
	src, err := ReadConfig("config.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(src)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fileCall(tool, path string) Call {
	return Call{
		Tool: tool, Module: "files", Kind: Builtin, Workdir: "/home/me/proj", Home: "/home/me",
		Arguments: fmt.Appendf(nil, `{"path":%q}`, path),
	}
}

func TestWithoutAnyRule(t *testing.T) {
	mcp := func(readOnly bool, trust Trust) Call {
		return Call{Tool: "gh.issue", Module: "gh", Kind: MCP, ReadOnly: readOnly, Trust: trust}
	}
	for _, c := range []struct {
		name string
		call Call
		want string
	}{
		{"file tool", fileCall("write", "a.txt"), "allow: built-in tool"},
		{"bash in the sandbox", bashCall("git push; rm -rf /", false), "allow: built-in tool"},
		{"bash that cannot be parsed, in the sandbox", bashCall("git (", false), "allow: built-in tool"},
		{"bash outside", bashCall("ls", true), "ask: bash outside the sandbox"},
		{"bash with broken arguments", Call{
			Tool: "bash", Kind: Builtin,
			Arguments: []byte(`{"command":"ls","command":"rm"}`),
		}, "ask: bash with arguments that cannot be read"},
		{"bash with a sandbox that is neither", Call{
			Tool: "bash", Kind: Builtin,
			Arguments: []byte(`{"command":"ls","outside_sandbox":"yes"}`),
		}, "ask: bash with arguments that cannot be read"},
		{"bash without arguments", Call{Tool: "bash", Kind: Builtin}, "ask: bash with arguments that cannot be read"},
		{"the user's own", Call{Tool: "notes.add", Module: "notes", Kind: Descriptor}, "allow: the user's own tool"},
		{"the user's own that is named bash", Call{
			Tool: "bash", Kind: Descriptor,
			Arguments: []byte(`{"outside_sandbox":true}`),
		}, "allow: the user's own tool"},
		{"server", mcp(false, ""), "ask: MCP tool"},
		{"server's tool that reads", mcp(true, ""), "allow: MCP tool that only reads"},
		{"trusted server", mcp(false, TrustAll), "allow: MCP server that is trusted"},
		{"server that is not believed", mcp(true, TrustNone), "ask: MCP tool"},
		{"server with a trust nobody knows", mcp(true, "most"), "ask: MCP tool"},
		{"nothing known", Call{Tool: "x"}, "ask: tool of an unknown kind"},
	} {
		for _, s := range []*Set{nil, {}} {
			d := s.Decide(c.call)
			if d.Rule != c.want || !strings.HasPrefix(c.want, string(d.Verdict)+":") {
				t.Errorf("%s: got %s, %q, want %q", c.name, d.Verdict, d.Rule, c.want)
			}
		}
	}
}

// Whatever the order of rules and files is, the strictest wins.
func TestStrictestWins(t *testing.T) {
	table := func(v string) string { return "[[policy.rule]]\ntool = \"bash\"\ndecision = \"" + v + "\"\n" }
	for _, c := range []struct{ order, want string }{
		{"allow", "allow"},
		{"ask", "ask"},
		{"deny", "deny"},
		{"allow ask", "ask"},
		{"ask allow", "ask"},
		{"allow deny", "deny"},
		{"deny allow", "deny"},
		{"ask deny", "deny"},
		{"deny ask", "deny"},
		{"allow ask deny", "deny"},
		{"deny ask allow", "deny"},
		{"ask allow deny", "deny"},
	} {
		var sources []Source
		var together string
		for _, v := range strings.Fields(c.order) {
			src, err := ReadRules(v+".toml", []byte(table(v)))
			if err != nil {
				t.Fatal(err)
			}
			sources, together = append(sources, src), together+table(v)
		}
		apart, err := New(sources...)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []*Set{apart, rulesOf(t, together)} {
			for _, outside := range []bool{true, false} {
				if d := s.Decide(bashCall("ls", outside)); string(d.Verdict) != c.want {
					t.Errorf("%s: got %s", c.order, d.Rule)
				}
			}
		}
	}
}

func TestModes(t *testing.T) {
	ask := Decision{Verdict: Ask, Rule: "ask: x", Offer: &Rule{}}
	for _, c := range []struct {
		mode Mode
		d    Decision
		want Verdict
		rule string
	}{
		{ModeAsk, ask, Ask, "ask: x"},
		{"", ask, Ask, "ask: x"},
		{"other", ask, Ask, "ask: x"},
		{ModeAuto, ask, Allow, "ask: x (mode auto)"},
		{ModeDeny, ask, Deny, "ask: x (mode deny)"},
		{ModeAuto, Decision{Verdict: Deny, Rule: "r"}, Deny, "r"},
		{ModeDeny, Decision{Verdict: Allow, Rule: "r"}, Allow, "r"},
	} {
		got := c.mode.Apply(c.d)
		if got.Verdict != c.want || got.Rule != c.rule || got.Verdict != Ask && got.Offer != nil {
			t.Errorf("%s of %s: got %+v", c.mode, c.d.Verdict, got)
		}
	}
}

// The lists of tool names mean what they have always meant.
func TestLists(t *testing.T) {
	for _, c := range []struct{ allow, deny, tool, want string }{
		{"", "", "a.b", "allow"},
		{"", "a.b", "a.b", "deny"},
		{"", "a.*", "a.b", "deny"},
		{"", "a.*", "ab.c", "allow"},
		{"", "a", "a.b", "deny"},
		{"", "a.b", "a__b", "deny"},
		{"a", "", "a.b", "allow"},
		{"a", "a.c", "a.c", "deny"},
		{"", "*", "a.b", "deny"},
		{"", "a/*", "a/b.c", "deny"},
		{"", "?.[bc]", "a.c", "deny"},
		{"", "?.[bc]", "a.d", "allow"},
		{"a.*", "", "a.b", "allow"},
		{"a.*", "", "b.b", "deny"},
		{"read", "", "read", "allow"},
		{"read", "", "write", "deny"},
		{"a.*", "a.rm", "a.rm", "deny"},
		{"*", "a.rm", "a.ls", "allow"},
	} {
		src := Source{Allow: fieldsOf(c.allow), Deny: fieldsOf(c.deny)}
		s, err := New(src)
		if err != nil {
			t.Fatal(err)
		}
		module, _, _ := strings.Cut(c.tool, ".")
		if d := s.Decide(Call{Tool: c.tool, Module: module, Kind: Descriptor}); string(d.Verdict) != c.want {
			t.Errorf("allow %q deny %q: %s: got %s, want %s", c.allow, c.deny, c.tool, d.Rule, c.want)
		}
	}
	for _, pattern := range []string{"", "[", `a\`} {
		for _, src := range []Source{{Allow: []string{pattern}}, {Ask: []string{pattern}}, {Deny: []string{pattern}}} {
			if _, err := New(src); err == nil {
				t.Errorf("%q is taken for a pattern", pattern)
			}
		}
	}
	none, _ := New(Source{Allow: []string{}})
	if d := none.Decide(Call{Tool: "a.b", Kind: Descriptor}); d.Verdict != Deny {
		t.Errorf("with an empty list allow: got %s", d.Rule)
	}
}

// fieldsOf are the words of a text, nil where there are none.
func fieldsOf(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Fields(text)
}

// A list "allow" says which tools there are. It was written when bash had no way
// out of the sandbox, and is no yes to that.
func TestAListIsNoYesToLeavingTheSandbox(t *testing.T) {
	for _, c := range []struct {
		name, config string
		call         Call
		want         string
	}{
		{"listed, inside", `policy.allow = ["bash"]`, bashCall("ls", false), "allow: bash"},
		{"listed, outside", `policy.allow = ["*"]`, bashCall("ls", true), "ask: bash outside the sandbox"},
		{"not listed", `policy.allow = ["read"]`, bashCall("ls", false), "deny: not in the list policy.allow"},
		{"not listed, outside", `policy.allow = ["read"]`, bashCall("ls", true), "deny: not in the list policy.allow"},
		{"asked about", "policy.allow = [\"read\"]\npolicy.ask = [\"bash\"]", bashCall("ls", false), "ask: bash"},
		{"a rule outside", "[[policy.rule]]\ntool = \"bash\"\ndecision = \"allow\"", bashCall("ls", true), "allow: bash"},
		{
			"a rule beside the list",
			"[policy]\nallow = [\"read\"]\n[[policy.rule]]\ntool = \"bash\"\ndecision = \"allow\"\ncommand = [\"ls\"]",
			bashCall("ls -l", false), "allow: bash: ls …",
		},
		{
			"what the rule does not have",
			"[policy]\nallow = [\"read\"]\n[[policy.rule]]\ntool = \"bash\"\ndecision = \"allow\"\ncommand = [\"ls\"]",
			bashCall("make", false), "deny: not in the list policy.allow",
		},
		{"server that is listed", `policy.allow = ["gh.*"]`, Call{Tool: "gh.issue", Kind: MCP}, "allow: gh.*"},
		{
			"broken arguments", `policy.allow = ["bash"]`,
			Call{Tool: "bash", Kind: Builtin, Arguments: []byte("{")},
			"ask: bash with arguments that cannot be read",
		},
	} {
		if d := config(t, c.config).Decide(c.call); d.Rule != c.want {
			t.Errorf("%s: got %q, want %q", c.name, d.Rule, c.want)
		}
	}
}

func TestWhatIsKnownBeforeAModuleIsAsked(t *testing.T) {
	for _, c := range []struct {
		allow, deny string
		excluded    bool
	}{
		{"", "", false},
		{"", "m.*", true},
		{"", "m*", true},
		{"", "*", true},
		{"", "m", true},
		{"", "m.x*", false},
		{"", "m.x", false},
		{"", "n.*", false},
		{"n.*", "", true},
		{"n.* m.x", "", false},
		{"?.x", "", false},
		{"m*", "", false},
	} {
		s, err := New(Source{Allow: fieldsOf(c.allow), Deny: fieldsOf(c.deny)})
		if err != nil {
			t.Fatal(err)
		}
		if d, got := s.Excludes("m", false); got != c.excluded || got && d.Verdict != Deny {
			t.Errorf("allow %q deny %q: excluded %t (%s), want %t", c.allow, c.deny, got, d.Rule, c.excluded)
		}
		if _, got := s.Excludes("bare", true); got != (c.deny == "*") {
			t.Errorf("allow %q deny %q: a module of bare names is excluded: %t", c.allow, c.deny, got)
		}
	}
	s := rulesOf(t, denials)
	if _, denies := s.Denies("bash"); denies {
		t.Error("all of bash is denied by a rule about a command")
	}
	s, _ = New(Source{Deny: []string{"m.rm"}})
	for _, name := range []string{"m.rm", "m__rm"} {
		if d, denies := s.Denies(name); !denies || d.Rule != "deny: m.rm" {
			t.Errorf("%s: got %+v", name, d)
		}
	}
	if _, denies := s.Denies("m.ls"); denies {
		t.Error("m.ls is denied")
	}
	unused := s.Unused(func(pattern string) bool { return pattern != "m.rm" })
	if len(unused) != 1 || unused[0].Tool != "m.rm" {
		t.Errorf("unused: got %v", unused)
	}
}

func TestPaths(t *testing.T) {
	rule := func(decision, tool, path string) string {
		return fmt.Sprintf("[[policy.rule]]\ntool = %q\ndecision = %q\npath = [%q]\n", tool, decision, path)
	}
	for _, c := range []struct {
		name, rules, tool, path, want string
	}{
		{"fits", rule("deny", "*", "src/**"), "edit", "src/a.go", "deny"},
		{"fits deeper", rule("deny", "*", "src/**"), "edit", "src/a/b.go", "deny"},
		{"fits the folder", rule("deny", "*", "src/**"), "ls", "src", "deny"},
		{"does not fit", rule("deny", "*", "src/**"), "edit", "doc/a.go", "allow"},
		{"begins alike", rule("deny", "*", "src/**"), "edit", "src2/a.go", "allow"},
		{"another tool", rule("deny", "edit", "src/**"), "write", "src/a.go", "allow"},
		{"dots", rule("deny", "*", "src/**"), "edit", "./doc/../src//a.go", "deny"},
		{"absolute", rule("deny", "*", "src/**"), "edit", "/home/me/proj/src/a.go", "deny"},
		{"from home", rule("deny", "*", "src/**"), "edit", "~/proj/src/a.go", "deny"},
		{"out and in again", rule("deny", "*", "src/**"), "edit", "../proj/src/a.go", "deny"},
		{"outside", rule("deny", "*", "src/**"), "edit", "/etc/src/a.go", "allow"},
		{"anywhere", rule("deny", "*", "**/.env"), "read", "../other/.env", "deny"},
		{"at the top", rule("deny", "*", "**/.env"), "read", ".env", "deny"},
		{"case", rule("deny", "*", "src/**"), "edit", "SRC/a.go", "allow"},
		{"search above", rule("deny", "*", "secret/**"), "grep", ".", "ask"},
		{"search without a path", rule("deny", "*", "secret/**"), "grep", "", "ask"},
		{"search below", rule("deny", "*", "secret/**"), "grep", "secret/a", "deny"},
		{"search beside", rule("deny", "*", "secret/**"), "grep", "src", "allow"},
		{"search where it may be", rule("deny", "*", "**/.env"), "grep", "src", "ask"},
		{"find above", rule("deny", "*", "a/b.txt"), "find", "a", "ask"},
		{"ask", rule("ask", "write", "*.md"), "write", "README.md", "ask"},
	} {
		if d := rulesOf(t, c.rules).Decide(fileCall(c.tool, c.path)); string(d.Verdict) != c.want {
			t.Errorf("%s: got %s, %q, want %s", c.name, d.Verdict, d.Rule, c.want)
		}
	}
	// Allowing is seen where nothing else is allowed.
	for _, c := range []struct {
		name, tool, glob, path string
		want                   Verdict
	}{
		{"fits", "edit", "src/**", "src/a.go", Allow},
		{"does not", "edit", "src/**", "a.go", Deny},
		{"leaves", "edit", "**", "../a.go", Deny},
		{"leaves by an absolute path", "edit", "**", "/etc/passwd", Deny},
		{"leaves through the folder", "edit", "src/**", "src/../../a.go", Deny},
		{"leaves inside", "edit", "src/**", "src/../a.go", Deny},
		{"comes back", "edit", "src/**", "../proj/src/a.go", Allow},
		{"from home", "edit", "**", "~/x", Deny},
		{"somebody's home is a name here", "edit", "~other/*", "~other/x", Deny},
		{"search of all of it", "grep", "src/**", "src", Allow},
		{"search of what is only named", "grep", "src", "src", Deny},
		{"search of a star", "grep", "*", "src", Deny},
		{"too long", "edit", "**", strings.Repeat("a/", 3000) + "x", Deny},
	} {
		src := Source{Allow: []string{}, Rules: []Rule{{Tool: c.tool, Decision: Allow, Path: []string{c.glob}}}}
		s, err := New(src)
		if c.glob[0] == '~' {
			if err == nil {
				t.Errorf("%s: %q is taken", c.name, c.glob)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if d := s.Decide(fileCall(c.tool, c.path)); d.Verdict != c.want {
			t.Errorf("%s: got %s, want %s", c.name, d.Rule, c.want)
		}
	}
	// What cannot be told asks.
	s := rulesOf(t, rule("deny", "*", "src/**"))
	noHome, noFolder := fileCall("read", "~/x"), fileCall("read", "x")
	noHome.Home, noFolder.Workdir = "", ""
	for _, c := range []Call{noHome, noFolder, {
		Tool: "read", Kind: Builtin, Workdir: "/",
		Arguments: []byte(`{"path":1}`),
	}} {
		if d := s.Decide(c); d.Verdict != Ask || d.Rule != "ask: perhaps *: src/**" {
			t.Errorf("%s: got %s", c.Arguments, d.Rule)
		}
	}
}

func TestWorkdir(t *testing.T) {
	s := rulesOf(t,
		"[[policy.rule]]\ntool = \"bash\"\ndecision = \"allow\"\ncommand = [\"make\"]\nworkdir = \"/home/me/proj\"")
	for _, c := range []struct {
		workdir, line string
		want          Verdict
	}{
		{"/home/me/proj", "make", Allow},
		{"/home/me/proj", "make && make", Allow},
		{"/home/me/proj/sub", "make", Ask},
		{"/home/me", "make", Ask},
		{"", "make", Ask},
		{"/home/me/proj", "cd /tmp && make", Ask},
	} {
		call := bashCall(c.line, true)
		call.Workdir = c.workdir
		if d := s.Decide(call); d.Verdict != c.want {
			t.Errorf("%q in %q: got %s", c.line, c.workdir, d.Rule)
		}
	}
}

// What is offered says what it would allow, allows it, and nothing more than it
// says.
func TestOffers(t *testing.T) {
	s := rulesOf(t, sensible)
	for _, c := range []struct{ line, pattern, also, not string }{
		{"uname -a", "bash: uname -a …", "uname -a -r", "uname -r"},
		{"git status && uname -a", "bash: uname -a …", "uname -a", "git pull"},
		{"uname a; uname a b", "bash: uname a …", "uname a c", "uname; rm x"},
		{"uname && id", "", "", ""}, // two rules
		{"host 'a b' c", `bash: host "a b" c …`, "host a\\ b c", "host a b c"},
		{"host '…'", `bash: host "…" …`, "host '…'", "host x"},
		{"host 'a\nb'", `bash: host "a\nb" …`, "host 'a\nb'", "host a"},
		{"sudo make", "", "", ""},
		{"git push > x", "", "", ""},
		{"git push $x", "", "", ""},
		{"(git push)", "", "", ""},
		{"git (", "", "", ""},
		{"", "", "", ""},
		{"bash", "", "", ""},
		{"host " + strings.Repeat("X", 300), "", "", ""},
		{"cd /tmp && ./x", "", "", ""},
	} {
		d := s.Decide(bashCall(c.line, true))
		if d.Verdict != Ask || d.Rule != "ask: bash outside the sandbox" {
			t.Errorf("%q: got %s", c.line, d.Rule)
		}
		if got := d.offered(); got != c.pattern {
			t.Errorf("%q: got %q offered, want %q", c.line, got, c.pattern)
		}
		if d.Offer == nil || c.pattern == "" {
			continue
		}
		with, err := s.With(*d.Offer)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{c.line, c.also} {
			if d := with.Decide(bashCall(line, true)); d.Verdict != Allow {
				t.Errorf("%q after %q was allowed: got %s", line, c.pattern, d.Rule)
			}
		}
		if d := with.Decide(bashCall(c.not, true)); d.Verdict != Ask {
			t.Errorf("%q after %q was allowed: got %s", c.not, c.pattern, d.Rule)
		}
	}
	if d := s.Decide(bashCall("git push", true)); d.Verdict != Ask {
		t.Error("With changed the set it was called on")
	}
}

// Nothing is offered for what can read, write or run, and no rule that was offered
// allows it.
func TestNothingWideIsOffered(t *testing.T) {
	s := &Set{}
	for name := range harmless {
		d := (*Set)(nil).Decide(bashCall(name, true))
		if d.Offer == nil {
			t.Fatalf("%q: nothing is offered", name)
		}
		var err error
		if s, err = s.With(*d.Offer); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range strings.Split(strings.TrimSpace(wide+reading), "\n") {
		if d := (*Set)(nil).Decide(bashCall(line, true)); d.Verdict != Ask || d.Offer != nil {
			t.Errorf("%q: %q is offered", line, d.offered())
		}
		if d := s.Decide(bashCall(line, true)); d.Verdict != Ask {
			t.Errorf("%q is allowed by %s", line, d.Rule)
		}
	}
}

// A rule that a user writes for a folder does not allow what leaves it.
func TestARuleForAFolderStaysInIt(t *testing.T) {
	src := Source{}
	for _, line := range []string{
		"git push", "git fetch", "git log", "git ls-remote", "git pull", "git commit", "git diff", "go test", "go build",
		"go vet", "make", "npm test", "npm ci",
		"yarn run", "cargo test", "pytest",
	} {
		r := Rule{Tool: "bash", Decision: Allow, Workdir: "/home/me/proj"}
		for _, w := range strings.Fields(line) {
			r.Command = append(r.Command, Word{w})
		}
		src.Rules = append(src.Rules, r)
	}
	s, err := New(src)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(wide), "\n") {
		if d := s.Decide(bashCall(line, true)); d.Verdict != Ask {
			t.Errorf("%q is allowed by %s", line, d.Rule)
		}
	}
	elsewhere := bashCall("go test", true)
	elsewhere.Workdir = "/home/me/other"
	if d := s.Decide(elsewhere); d.Verdict != Ask {
		t.Errorf("in another folder it is allowed by %s", d.Rule)
	}
}

// reading are lines that read what their caller chooses, or run what the files of a
// folder say, which a tool in the sandbox can write.
const reading = `
du --files0-from=/home/me/.ssh/id_rsa
du -X /home/me/.netrc
du -sh .
ps eww
ps
pgrep -a .
pgrep -F /etc/passwd
pgrep x
ls
ls /home/me/.password-store
lscpu --sysroot=.
lsblk --sysroot .
uptime
uptime /var/run/utmp
who /home/me/x
date -f /home/me/.netrc
date
docker logs x
docker ps
docker info
nslookup -
sort --files0-from=/home/me/.netrc
sort --compress-program=./x a
sort -o /home/me/.bashrc a
sort a
wc --files0-from=/home/me/.netrc
wc a
file -f /home/me/.netrc
file a
grep -f /home/me/.netrc x
grep -r . /home/me/.ssh
rg --pre ./x y
rg x
diff --from-file=/home/me/.netrc x
diff a b
cmp a b
find . -fprintf /home/me/.bashrc x
find . -name x
fd -x ./x
tar --checkpoint=1 --checkpoint-action=exec=./x -cf y z
tar -I ./x -xf y
tar -tf y
cat /home/me/.netrc
head a
tail a
tac a
nl a
od a
xxd a
hexdump a
strings a
base64 a
md5sum a
sha256sum -c a
cut -d: -f1 a
tr a b
uniq a b
split a
csplit a b
paste a
join a b
comm a b
fmt a
fold a
column a
awk -f x
gawk -e x
sed -n w/home/me/.bashrc x
sed 1e x
jq . a
jq -n env
yq . a
xmllint a
man -P ./x ls
less a
more a
most a
view a
ed a
ex a
tee a
printenv
env
set
export
locale
hostname -F /home/me/.netrc
hostname x
mount
ip -batch /home/me/.netrc
ip netns exec x y
ss -F /home/me/.netrc
netstat -p
lsof
top -b
htop
vmstat
iostat
dig -f /home/me/.netrc
dig @x y
curl -K x
wget -i x
nc x 1
telnet x
ssh -o ProxyCommand=./x y
ssh-add -l
scp a b
sftp x
gh api x
git status
git -c core.fsmonitor=./x status
git --exec-path=. status
git grep -O./x y
git log
git push
git fetch
go test ./...
go build
go vet ./...
go version
go list
make
make test
npm test
npm run build
yarn test
cargo test
pytest
python3 x.py
bash x.sh
node build
ruby x.rb
./x
./deploy.sh now
/home/me/proj/deploy now
java -jar x
mvn test
gradle test
cmake .
ninja
meson setup x
tox
bundle exec x
rake
just x
systemctl list-units
journalctl
dmesg -F x
getconf -a
nvidia-smi -f x
test -e x
[ -e x ]
printf %s x
stat a
readlink a
realpath a
tree
locate x
history
type x
command -v x
cd /tmp
pwd
`

// wide are lines that run what is not the folder's, or write outside of it.
const wide = `
git config core.hooksPath /tmp/x
git config --global alias.st '!sh'
git -c core.pager=/tmp/x log
git --exec-path=/tmp/x status
git -C /tmp/x status
git rebase --exec ./x main
git rebase -x ./x main
git bisect run ./x
git submodule foreach ls
git filter-branch --tree-filter ls
git difftool -x ./x
git clone https://example.org/x /home/me/other
git worktree add /home/me/other
git archive -o /home/me/x.tar HEAD
git fetch --upload-pack=/tmp/x
git fetch --upl /tmp/x .
git ls-remote --upload-pack /tmp/x
git push --receive-pack=/tmp/x
git push --exec=/tmp/x
git push /tmp/x
git push ../x main
git push file:///tmp/x
git pull --upload-pack=./x
git log --output=/home/me/.bashrc
git log -p --ext-diff
git fetch 'ext::sh -c x'
git diff --output /home/me/.bashrc
git commit -F /home/me/.ssh/id_rsa
cp a /home/me/.bashrc
cp a b
dd if=a of=b
install a b
tee a
mv a b
ln -s a b
rm -rf build
touch a
sed -i s/a/b/ x
ssh-agent sh
ssh host
ssh-keygen -f x
env
env x
xargs
xargs rm
find . -exec x ;
find . -delete
find .
awk 'BEGIN{system("x")}'
sed -n 1p x
tar -cf /tmp/x.tar .
rsync a b
curl -o /home/me/.bashrc https://example.org
wget https://example.org
gpg --output x y
openssl x
vim -c x
less x
man x
python3 -c 'x'
python3 -m http.server
python3 /tmp/x.py
python3 ../x.py
perl -e x
ruby -e x
node -e x
bash /tmp/x.sh
bash ../x.sh
/tmp/x
/opt/x/deploy
../x
deno eval x
bun x
npx x
npm exec x
npm install x
npm publish
npm run
npm --prefix /tmp/x test
npm test --prefix /tmp/x
npm test --prefix=/tmp/x
npm test --script-shell /tmp/x
npm test --script-sh=/tmp/x
yarn run x --node-options=--require=/tmp/x
yarn dlx x
go run example.org/x@latest
go install example.org/x@latest
go get example.org/x
go env -w GOFLAGS=-toolexec=/tmp/x
go tool x
go test -exec /tmp/x ./...
go test --exec=/tmp/x ./...
go build -toolexec=/tmp/x ./...
go build -o /home/me/bin/x ./cmd/x
go build -o=../x ./cmd/x
go build '-ldflags=-extld=/tmp/x'
go vet -vettool=/tmp/x ./...
go test -C /tmp/x ./...
go test -coverprofile=/home/me/.bashrc ./...
make -C /tmp/x
make -C/tmp/x
make -f /tmp/x
make -f -
make --eval=x
make --file=/tmp/x
make --fil=x
make SHELL=/tmp/x
make test CC=x
cargo run
cargo install x
cargo test --config x
cargo test --manifest-path /tmp/x/Cargo.toml
pytest -p x
pytest /tmp/x
pytest --rootdir=/tmp
pytest -c/tmp/x
docker run x
docker exec x sh
docker compose up
docker -H tcp://x ps
kubectl get pods
kubectl apply -f x
systemctl status
systemd-run x
crontab -l
at now
tmux new -d x
screen -dm x
code .
xdg-open x
unknown
unknown sub
pip install x
apt-get install x
gh pr checkout 1
terraform plan
`

func (d Decision) offered() string {
	if d.Offer == nil {
		return ""
	}
	return d.Offer.Pattern()
}

// Where a rule asks, an allow would not help, and is not offered.
func TestNothingIsOfferedThatWouldNotHelp(t *testing.T) {
	for _, call := range []Call{bashCall("git push", true), bashCall("git push", false)} {
		s := config(t, `policy.ask = ["bash"]`)
		if d := s.Decide(call); d.Verdict != Ask || d.Offer != nil {
			t.Errorf("got %s, offered %s", d.Rule, d.offered())
		}
	}
	if d := (*Set)(nil).Decide(Call{Tool: "gh.issue", Kind: MCP}); d.Offer != nil {
		t.Errorf("got %s offered: no narrower than the tool", d.offered())
	}
}

var sameRule = cmp.Options{cmpopts.IgnoreFields(Rule{}, "Place"), cmpopts.IgnoreUnexported(Rule{})}
