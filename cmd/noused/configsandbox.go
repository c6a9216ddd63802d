package main

import "path/filepath"

// sandboxSettings are what sandboxed tools may not, beside what no tool may.
type sandboxSettings struct {
	Hide    []string // files and folders that they cannot read; absolute
	Network bool     // TCP is open
}

// usuallyHidden are below the home folder: what has keys and passwords, and what
// browsers keep.
var usuallyHidden = []string{
	".ssh", ".aws", ".gnupg", ".azure", ".kube", ".netrc", ".git-credentials", ".password-store", ".docker/config.json",
	".config/gcloud", ".config/gh", ".local/share/keyrings",
	".mozilla", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge", ".config/vivaldi",
	"snap/firefox", "snap/chromium", ".var/app/org.mozilla.firefox", ".var/app/com.google.Chrome", ".var/app/org.chromium.Chromium",
}

// sandbox is the section [sandbox], which only the file can have.
func (r *resolver) sandbox() (s sandboxSettings) {
	s.Network = r.boolean("sandbox.network", true)
	v, from := r.file.find("sandbox.hide")
	if v == nil {
		for _, name := range usuallyHidden {
			s.Hide = append(s.Hide, filepath.Join(r.home(), name))
		}
		return s
	}
	for _, text := range r.asTexts(v, from) {
		path := r.absolute(text, from)
		if path == "/" {
			r.fail(from, "nothing could be read without /")
		}
		s.Hide = append(s.Hide, path)
	}
	return s
}
