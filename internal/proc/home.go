package proc

import (
	"path/filepath"
	"slices"
	"strings"
)

// Home are the folders that have a user's own files, as the XDG base directories
// name them. All are absolute.
type Home struct {
	Dir, Config, Data, State, Cache string
}

// Hidden is what sandboxed programs must not read of a home: every entry whose name
// begins with a dot, so that no key, login, history or profile need be known to be
// hidden, but for toolchains and settings that programs need. Other folders of a home
// can be read, but for mail. Links on the way to the home itself count as they are
// now.
func (h Home) Hidden() (hidden Hidden) {
	h = Home{Resolve(h.Dir), Resolve(h.Config), Resolve(h.Data), Resolve(h.State), Resolve(h.Cache)}
	dir := h.Dir
	hidden.Dots = []string{dir}
	for _, base := range []string{h.Config, h.Data, h.State, h.Cache} {
		if !inside(base, dir) { // XDG says where, and it may be elsewhere
			hidden.Paths = append(hidden.Paths, base)
		}
	}
	for _, name := range keys {
		if strings.HasPrefix(name, ".") || dir != "/" {
			hidden.Paths = append(hidden.Paths, h.at(name))
		}
	}
	for _, name := range harmless {
		hidden.Except = append(hidden.Except, h.at(name))
	}
	return hidden
}

// at is where something is that is usually there below a home, whose folders have no
// links on the way.
func (h Home) at(name string) string {
	for usual, base := range map[string]string{
		".config": h.Config, ".local/share": h.Data, ".local/state": h.State,
		".cache": h.Cache,
	} {
		if rest, ok := strings.CutPrefix(name, usual+"/"); ok {
			return filepath.Join(base, rest)
		}
	}
	return filepath.Join(h.Dir, name)
}

// Open is h with a path that can be read although it is hidden, and what is hidden
// by name inside of it hidden as before. The path has no links on the way.
func (h Hidden) Open(path string) Hidden {
	h.Paths = slices.DeleteFunc(slices.Clone(h.Paths), func(hidden string) bool { return hidden == path })
	h.Except = append(slices.Clip(h.Except), path)
	return h
}

// Shut is h with a path that is hidden with all that is in it.
func (h Hidden) Shut(path string) Hidden {
	real := Resolve(path)
	h.Paths = append(slices.Clip(h.Paths), path)
	h.Except = slices.DeleteFunc(slices.Clone(h.Except), func(except string) bool { return inside(real, except) })
	return h
}

// keys are known to have keys, logins, and what people wrote or visited. Being below
// a dot, most are hidden without being named: they are named so that a link to them
// hides what it leads to, and that no exception opens them.
var keys = []string{
	// Keys and passwords.
	".ssh", ".gnupg", ".password-store", ".netrc", ".git-credentials", ".config/git/credentials", ".authinfo",
	".authinfo.gpg",
	".local/share/keyrings", ".local/share/kwalletd", ".config/keepassxc", ".config/op", ".config/sops", ".pki", ".step",
	".vault-token",
	// Clouds, clusters and forges.
	".aws", ".azure", ".config/gcloud", ".oci", ".boto", ".s3cfg", ".kube", ".docker/config.json", ".config/containers",
	".config/gh",
	".config/glab-cli", ".config/hub", ".config/rclone", ".config/doctl", ".terraformrc",
	".terraform.d/credentials.tfrc.json", ".pulumi/credentials.json",
	// Registries of packages.
	".npmrc", ".yarnrc.yml", ".config/pnpm/rc", ".pypirc", ".config/pip", ".pip", ".config/pypoetry", ".condarc",
	".cargo/credentials", ".cargo/credentials.toml",
	".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties", ".gem/credentials", ".bundle/config",
	".composer/auth.json", ".config/composer", ".nuget/NuGet", ".hex/hex.config", ".cabal/config", ".sbt/.credentials",
	".ivy2/.credentials",
	// Databases.
	".pgpass", ".my.cnf", ".mylogin.cnf", ".rediscli_auth",
	// Agents and what belongs to them.
	".config/nous", ".config/noused", ".codex", ".claude", ".claude.json", ".gemini", ".config/github-copilot",
	".huggingface", ".cache/huggingface/token",
	// What toolchains keep beside themselves.
	".local/share/uv/credentials", ".stack/upload", ".nimble/github_api_token", ".opam/plugins", ".dotnet/corefx",
	// Mail.
	"Mail", "mail", "Maildir", "mbox", ".thunderbird", ".msmtprc", ".mbsyncrc", ".fetchmailrc", ".mutt", ".muttrc",
	".config/mutt", ".config/neomutt", ".config/aerc", ".config/evolution", ".local/share/evolution",
	// Browsers, and whatever runs as a snap or a flatpak.
	".mozilla", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge",
	".config/vivaldi", ".config/opera", "snap", ".var",
	// Histories.
	".bash_history", ".zsh_history", ".python_history", ".node_repl_history", ".psql_history", ".mysql_history",
	".lesshst", ".viminfo", ".local/share/fish/fish_history", ".local/share/zsh/history",
}

// harmless is what programs need of what begins with a dot: their toolchains, what
// they have fetched, and settings. Of a folder that can have a key, only what has
// none. Anyone who keeps a key in ~/.bashrc or ~/.gitconfig has it read.
var harmless = slices.Concat(
	beneathEach("",
		// Shells.
		".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".bash_completion", ".profile", ".zshrc",
		".zshenv", ".zprofile", ".zlogin", ".zlogout",
		".inputrc", ".dircolors", ".oh-my-zsh", ".oh-my-bash", ".p10k.zsh", ".terminfo", ".tmux.conf", ".screenrc",
		// Git, editors, and what looks at sources.
		".gitconfig", ".gitignore", ".gitignore_global", ".gitattributes", ".gitmessage", ".editorconfig", ".vimrc", ".vim",
		".nanorc", ".ideavimrc", ".ignore", ".ripgreprc", ".ctags", ".ctags.d",
		".clang-format", ".clang-tidy", ".gdbinit", ".lldbinit", ".pylintrc", ".flake8", ".isort.cfg", ".prettierrc",
		".eslintrc", ".eslintrc.json", ".eslintrc.js", ".rubocop.yml", ".rspec", ".irbrc", ".pryrc", ".sqliterc", ".psqlrc",
		".ghci", ".Rprofile",
		// What a home has that is itself a repository, or is worked in as one.
		".git", ".gitmodules", ".github", ".gitlab-ci.yml", ".dockerignore", ".npmignore", ".pre-commit-config.yaml",
		".golangci.yml", ".golangci.yaml", ".vscode", ".idea", ".devcontainer", ".agents",
		// Which version, and the managers of versions.
		".tool-versions", ".node-version", ".nvmrc", ".python-version", ".ruby-version", ".java-version", ".go-version",
		".terraform-version", ".asdfrc", ".mise.toml", ".sdkmanrc",
		".asdf", ".nvm", ".nodenv", ".fnm", ".n", ".volta", ".pyenv", ".rye", ".rbenv", ".rvm", ".jenv", ".jabba", ".sdkman",
		".goenv", ".gvm", ".tfenv", ".phpenv", ".plenv", ".kerl", ".kiex", ".swiftly", ".zvm",
		".rustup", ".juliaup", ".ghcup", ".elan", ".opam", ".nimble", ".choosenim", ".bun", ".deno", ".dotnet", ".linuxbrew",
		".nix-profile", ".nix-defexpr", ".guix-profile", ".espressif", ".emsdk", ".konan",
		// What was fetched or built for them.
		".npm-global", ".npm-packages", ".pnpm-store", ".node-gyp", ".virtualenvs", ".venv", ".venvs", ".poetry", ".mix",
		".stack",
	),
	beneathEach(".cargo/", "bin", "env", "config", "config.toml", "registry", "git"),
	beneathEach(".m2/", "repository", "wrapper", "toolchains.xml"),
	beneathEach(".gradle/", "wrapper", "caches", "jdks"),
	beneathEach(".ivy2/", "cache", "local"), beneathEach(".sbt/", "boot", "launchers"),
	beneathEach(".coursier/", "cache", "bin"), beneathEach(".cabal/", "bin", "packages", "store"),
	beneathEach(".julia/", "juliaup", "packages", "artifacts", "registries", "compiled", "environments", "config"),
	beneathEach(".hex/", "packages"), beneathEach(".pub-cache/", "bin", "hosted", "global_packages"),
	beneathEach(".gem/", "ruby"), beneathEach(".bundle/", "cache", "plugin"), beneathEach(".yarn/", "bin", "releases",
		"berry"), beneathEach(".conda/", "envs", "pkgs"), beneathEach(".nuget/", "packages"),
	beneathEach(".composer/", "vendor"),
	beneathEach(".docker/", "cli-plugins"), beneathEach(".krew/", "bin", "store"),
	beneathEach(".terraform.d/", "plugins", "plugin-cache"), beneathEach(".foundry/", "bin", "versions"),
	beneathEach(".platformio/", "packages", "penv"), beneathEach(".arduino15/", "packages"),
	beneathEach(".config/", "git/config", "git/ignore", "git/attributes", "go", "nvim", "vim", "helix", "fish/config.fish",
		"fish/conf.d", "fish/functions", "fish/completions", "mise", "uv", "direnv", "ruff", "black", "mypy", "pycodestyle",
		"flake8",
		"pylintrc", "yamllint", "clangd", "ccache", "starship.toml", "tmux", "fontconfig", "rustfmt", "bat", "matplotlib",
		"user-dirs.dirs", "locale.conf", "readline"),
	beneathEach(".local/", "bin", "sbin", "lib", "lib64", "libexec", "include", "opt", "pipx"),
	beneathEach(".local/state/", "nix"),
	beneathEach(".local/share/", "applications", "bash-completion", "zsh", "man", "icons", "fonts", "mime", "locale",
		"terminfo", "mise", "rtx", "asdf", "fnm", "nvm", "uv", "pipx", "pnpm", "virtualenv", "virtualenvs", "hatch", "rye",
		"pyenv",
		"rustup", "swiftly", "gem/ruby", "coursier", "jupyter/kernels", "nvim", "vim", "zinit"),
	beneathEach(".cache/", "ms-playwright", "puppeteer", "Cypress"),
)

func beneathEach(folder string, names ...string) (paths []string) {
	for _, name := range names {
		paths = append(paths, folder+name)
	}
	return paths
}
