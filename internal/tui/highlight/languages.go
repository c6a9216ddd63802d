package highlight

// mode is how a language is read.
type mode uint8

const (
	words   mode = iota
	css          // words, and selectors
	markup       // tags
	lines        // by what they begin with
	console      // prompts, and commands behind them
)

// quote is how a string begins and ends.
type quote struct {
	open, close string
	as          form
}

type form uint8

const (
	multi form = 1 << iota // it may be longer than a line
	raw                    // a backslash is one
	holes                  // code may stand in it
	char                   // it is one character
)

// language is what the scanner has to know of one.
type language struct {
	names string // behind a fence, the first is its own
	files string // ends of names that begin with a point, and whole names; in small letters
	mode  mode

	comments    string // what a comment begins with that ends with the line
	open, close string // a comment's that may be longer
	quotes      []quote
	hole        string // what code in a string begins with
	letters     string // in words, beside letters and digits
	marks       string // that variables begin with
	keys        string // what stands behind a key at the beginning of a line

	keywords, types string

	nested     bool // comments may stand in comments
	fold       bool // capitals make no difference
	capitals   bool // types begin with one
	loose      bool // keys may stand anywhere
	lisp       bool // a call begins with its bracket
	directives bool // lines begin with # that are for a preprocessor
	decorators bool // names begin with @ that are about what follows
	patterns   bool // regular expressions stand between slashes
	sections   bool // lines in brackets are headings
}

var (
	double   = quote{`"`, `"`, 0}
	single   = quote{`'`, `'`, 0}
	letter   = quote{`'`, `'`, char}
	triple   = quote{`"""`, `"""`, multi | holes}
	rawTick  = quote{"`", "`", multi | raw}
	withCode = quote{`"`, `"`, multi | holes}
	asItIs   = quote{`'`, `'`, multi | raw}
)

// languages are those that are known. The lists of words are short: what a reader
// would miss.
var languages = [...]language{
	{
		names: "go golang", files: ".go", comments: "//", open: "/*", close: "*/", quotes: []quote{double, letter, rawTick},
		keywords: "break case chan const continue default defer else fallthrough for func go goto if import interface map " +
			"package range return select struct switch type var",
		types: "any bool byte comparable complex64 complex128 error float32 float64 int int8 int16 int32 int64 rune " +
			"string uint uint8 uint16 uint32 uint64 uintptr",
	},
	{
		names: "python py python3 py3 pycon gyp starlark bzl", files: ".py .pyi .pyw .bzl .star sconstruct wscript",
		comments: "#", decorators: true,
		quotes: []quote{
			{`"""`, `"""`, multi},
			{`'''`, `'''`, multi},
			{`r"`, `"`, raw},
			{`r'`, `'`, raw},
			{`f"`, `"`, 0},
			{`f'`, `'`, 0},
			{`b"`, `"`, 0},
			{`b'`, `'`, 0},
			double, single,
		},
		keywords: "and as assert async await break case class continue def del elif else except finally for from global if " +
			"import in is lambda match nonlocal not or pass raise return try while with yield",
		types: "bool bytes dict float frozenset int list object set str tuple",
	},
	{
		names: "javascript js jsx mjs cjs node", files: ".js .jsx .mjs .cjs", comments: "//", open: "/*", close: "*/",
		letters: "$", hole: "${", decorators: true, patterns: true,
		quotes: []quote{double, single, {"`", "`", multi | holes}},
		keywords: "as async await break case catch class const continue debugger default delete do else export extends " +
			"finally for from function get if import in instanceof let new of return set static switch throw try typeof var " +
			"void while with yield",
	},
	{
		names: "typescript ts tsx mts cts", files: ".ts .tsx .mts .cts", comments: "//", open: "/*", close: "*/",
		letters: "$", hole: "${", decorators: true, patterns: true,
		quotes: []quote{double, single, {"`", "`", multi | holes}},
		keywords: "abstract as async await break case catch class const continue declare default delete do else enum " +
			"export extends finally for from function get if implements import in infer instanceof interface is keyof let " +
			"namespace new of private protected public readonly return satisfies set static switch throw try type typeof var " +
			"void while with yield",
		types: "any bigint boolean never number object string symbol unknown Array Map Partial Promise Record Set",
	},
	{
		names: "rust rs", files: ".rs", comments: "//", open: "/*", close: "*/", nested: true, capitals: true,
		directives: true,
		quotes: []quote{
			{`r#"`, `"#`, multi | raw},
			{`r"`, `"`, multi | raw},
			{`b"`, `"`, multi},
			{`"`, `"`, multi},
			letter,
		},
		keywords: "as async await break const continue crate dyn else enum extern fn for if impl in let loop match mod " +
			"move mut pub ref return static struct trait type union unsafe use where while",
		types: "bool char f32 f64 i8 i16 i32 i64 i128 isize str u8 u16 u32 u64 u128 usize",
	},
	{
		names: "c h", files: ".c .h", comments: "//", open: "/*", close: "*/", quotes: []quote{double, letter},
		directives: true,
		keywords: "auto break case const continue default do else enum extern for goto if inline register restrict return " +
			"sizeof static struct switch typedef union volatile while",
		types: "bool char double float int int8_t int16_t int32_t int64_t long short signed size_t ssize_t uint8_t " +
			"uint16_t uint32_t uint64_t unsigned void",
	},
	{
		names: "c++ cpp cc cxx hpp cuda arduino objective-c objc", files: ".cc .cpp .cxx .hh .hpp .hxx .cu .ino .m .mm",
		comments: "//", open: "/*", close: "*/", directives: true,
		quotes: []quote{{`R"(`, `)"`, multi | raw}, double, letter},
		keywords: "alignas alignof auto break case catch class co_await co_return co_yield concept const consteval " +
			"constexpr constinit const_cast continue decltype default delete do dynamic_cast else enum explicit export extern " +
			"final for friend goto if inline mutable namespace new noexcept operator override private protected public " +
			"reinterpret_cast requires return sizeof static static_assert static_cast struct switch template throw try " +
			"typedef typename union using virtual volatile while",
		types: "bool char char8_t double float int int8_t int16_t int32_t int64_t long short signed size_t string " +
			"uint8_t uint16_t uint32_t uint64_t unsigned void",
	},
	{
		names: "csharp c# cs", files: ".cs .csx", comments: "//", open: "/*", close: "*/", capitals: true, directives: true,
		quotes: []quote{{`"""`, `"""`, multi | raw}, {`@"`, `"`, multi | raw}, double, letter},
		keywords: "abstract as async await base break case catch checked class const continue default delegate do else " +
			"enum event explicit extern finally fixed for foreach get goto if implicit in init interface internal is lock " +
			"namespace new operator out override params partial private protected public readonly record ref required return " +
			"sealed set sizeof stackalloc static struct switch throw try typeof unsafe using var virtual volatile when where " +
			"while with yield",
		types: "bool byte char decimal double dynamic float int long nint object sbyte short string uint ulong ushort " +
			"void",
	},
	{
		names: "java", files: ".java", comments: "//", open: "/*", close: "*/", quotes: []quote{
			{`"""`, `"""`, multi},
			double,
			letter,
		}, capitals: true, decorators: true,
		keywords: "abstract assert break case catch class const continue default do else enum extends final finally for " +
			"goto if implements import instanceof interface native new package permits private protected public record return " +
			"sealed static strictfp switch synchronized throw throws transient try var volatile while yield",
		types: "boolean byte char double float int long short void",
	},
	{
		names: "kotlin kt kts gradle groovy", files: ".kt .kts .gradle .groovy jenkinsfile", comments: "//", open: "/*",
		close: "*/", nested: true, capitals: true, decorators: true,
		quotes: []quote{triple, {`"`, `"`, holes}, single}, hole: "${", marks: "$",
		keywords: "abstract actual annotation as break by catch class companion const constructor continue crossinline " +
			"data def do else enum expect extends final finally for fun get if import in infix init inline inner interface " +
			"internal is lateinit new noinline object open operator out override package private protected public reified " +
			"return sealed set suspend tailrec throw try typealias val var vararg when where while",
	},
	{
		names: "swift", files: ".swift", comments: "//", open: "/*", close: "*/", nested: true, capitals: true,
		directives: true, decorators: true,
		quotes: []quote{triple, {`#"`, `"#`, raw}, {`"`, `"`, holes}}, hole: `\(`,
		keywords: "actor any as associatedtype async await break case catch class continue default defer deinit do else " +
			"enum extension fallthrough fileprivate final for func get guard if import in indirect init inout internal is " +
			"lazy let mutating open operator override private protocol public repeat required rethrows return set some static " +
			"struct subscript switch throw throws try typealias unowned var weak where while",
	},
	{
		names: "scala sc", files: ".scala .sc .sbt", comments: "//", open: "/*", close: "*/", nested: true, capitals: true,
		decorators: true,
		quotes:     []quote{triple, {`"`, `"`, holes}, letter}, hole: "${", marks: "$",
		keywords: "abstract case catch class def derives do else end enum export extends extension final finally for " +
			"forSome given if implicit import lazy match new object override package private protected return sealed then " +
			"throw trait try type using val var while with yield",
	},
	{
		names: "dart", files: ".dart", comments: "//", open: "/*", close: "*/", capitals: true, decorators: true, hole: "${",
		marks:  "$",
		quotes: []quote{triple, {`'''`, `'''`, multi | holes}, {`"`, `"`, holes}, {`'`, `'`, holes}},
		keywords: "abstract as assert async await base break case catch class const continue covariant default deferred do " +
			"else enum export extends extension external factory final finally for get hide if implements import in interface " +
			"is late library mixin new on operator part required rethrow return sealed set show static switch sync throw try " +
			"typedef var when while with yield",
		types: "bool double dynamic int num void",
	},
	{
		names: "zig", files: ".zig .zon", comments: "//", quotes: []quote{double, letter, {`\\`, "\n", raw}},
		decorators: true, capitals: true,
		keywords: "align allowzero and anytype asm async await break catch comptime const continue defer else enum " +
			"errdefer error export extern fn for if inline noalias opaque or orelse packed pub resume return struct suspend " +
			"switch test threadlocal try union unreachable usingnamespace var volatile while",
		types: "anyerror bool comptime_int f32 f64 i8 i16 i32 i64 isize noreturn type u8 u16 u32 u64 usize void",
	},
	{
		names: "ruby rb", files: ".rb .rake .gemspec gemfile rakefile vagrantfile podfile", comments: "#", open: "=begin",
		close: "=end", letters: "?!", marks: "@$:", hole: "#{", capitals: true, patterns: true,
		quotes: []quote{withCode, asItIs, {"`", "`", holes}},
		keywords: "alias and attr_accessor attr_reader begin break case class def defined? do else elsif end ensure extend " +
			"for if in include loop module new next not or private protected public raise redo require require_relative " +
			"rescue retry return then undef unless until when while yield",
	},
	{
		names: "php php3 php8", files: ".php .phtml", comments: "// #", open: "/*", close: "*/", marks: "$", capitals: true,
		quotes: []quote{withCode, {`'`, `'`, multi}},
		keywords: "abstract and array as break callable case catch class clone const continue declare default do echo else " +
			"elseif empty enum enddeclare endfor endforeach endif endswitch endwhile extends final finally fn for foreach " +
			"function global goto if implements include include_once instanceof insteadof interface isset list match " +
			"namespace new or print private protected public readonly require require_once return static switch throw trait " +
			"try unset use var while xor yield",
		types: "bool float int iterable mixed never object string void",
	},
	{
		names: "perl pl", files: ".pl .pm .t", comments: "#", open: "=pod", close: "=cut", marks: "$@",
		quotes: []quote{withCode, asItIs},
		keywords: "and cmp die do else elsif eq for foreach ge given gt if last le local lt my ne next no not or our " +
			"package print printf push redo require return say shift sub unless until use when while xor",
	},
	{
		names: "lua luau", files: ".lua", comments: "--", open: "--[[", close: "]]",
		quotes:   []quote{{"[[", "]]", multi | raw}, double, single},
		keywords: "and break do else elseif end for function goto if in local not or repeat return then until while",
	},
	{
		names: "bash sh shell zsh ksh fish", files: ".sh .bash .zsh .ksh .fish .bashrc .profile .zshrc .env .envrc pkgbuild",
		comments: "#", letters: "-", marks: "$", hole: "$(", quotes: []quote{withCode, asItIs},
		keywords: "alias break case continue declare do done elif else esac eval exec exit export fi for function if in " +
			"local readonly return select set shift source then trap unset until while",
		types: "awk cat cd chmod cp curl echo find git go grep ls make mkdir mv npm printf pwd python read rm sed sudo " +
			"tar test",
	},
	{
		names: "console shell-session shellsession terminal sh-session bash-session", mode: console, comments: "#",
		letters: "-", marks: "$", hole: "$(", quotes: []quote{withCode, asItIs},
		keywords: "case do done elif else esac export fi for if in sudo then while",
	},
	{
		names: "powershell pwsh ps1 ps", files: ".ps1 .psm1 .psd1", comments: "#", open: "<#", close: "#>", letters: "-",
		marks: "$", hole: "$(", fold: true,
		quotes: []quote{
			{`@"`, `"@`, multi | raw | holes},
			{`@'`, `'@`, multi | raw},
			{`"`, `"`, multi | raw | holes},
			asItIs,
		},
		keywords: "begin break catch class continue data do dynamicparam else elseif end enum exit filter finally for " +
			"foreach from function if in param process return switch throw trap try until using while -and -eq -ge -gt -le " +
			"-like -lt -match -ne -not -or",
	},
	{
		names: "batch bat cmd", files: ".bat .cmd", comments: "rem REM ::", quotes: []quote{double}, fold: true,
		keywords: "call cd copy del do echo else endlocal errorlevel exist exit for goto if in not pause set setlocal " +
			"shift start",
	},
	{
		names: "sql mysql postgres postgresql sqlite plsql pgsql", files: ".sql .ddl", comments: "--", open: "/*",
		close: "*/", fold: true, quotes: []quote{{`'`, `'`, multi | raw}, {`"`, `"`, raw}, {"`", "`", raw}},
		keywords: "add all alter analyze and any as asc begin between by cascade case check column commit constraint " +
			"create cross database default delete desc distinct drop else end except exists explain foreign from full " +
			"function grant group having if ilike in index inner insert intersect into is join key lateral left like limit " +
			"natural not null offset on or order outer over partition primary procedure recursive references replace " +
			"returning revoke right rollback select set table then transaction trigger truncate union unique update using " +
			"values view when where with",
		types: "bigint blob boolean bytea char date decimal double float int integer interval json jsonb numeric real " +
			"serial smallint text time timestamp timestamptz uuid varchar",
	},
	{
		names: "html htm vue svelte xhtml", files: ".html .htm .vue .svelte", mode: markup, open: "<!--", close: "-->",
		letters: "-:.@", quotes: []quote{{`"`, `"`, multi | raw}, asItIs},
	},
	{
		names: "xml svg xsl xsd rss plist", files: ".xml .svg .xsl .xslt .xsd .plist .csproj .rng", mode: markup,
		open: "<!--", close: "-->", letters: "-:.", quotes: []quote{{`"`, `"`, multi | raw}, asItIs},
	},
	{
		names: "css scss sass less", files: ".css .scss .sass .less", mode: css, comments: "//", open: "/*", close: "*/",
		letters: "-", marks: "$", keys: ":", loose: true, decorators: true, quotes: []quote{double, single},
		keywords: "important",
	},
	{
		names: "json jsonc json5 jsonl ndjson", files: ".json .jsonc .json5 .jsonl .ndjson .webmanifest", comments: "//",
		open: "/*", close: "*/", keys: ":", loose: true, quotes: []quote{double, single},
	},
	{
		names: "yaml yml", files: ".yaml .yml .clang-format", comments: "#", letters: "-./", keys: ":",
		quotes:   []quote{{`"`, `"`, multi}, asItIs},
		keywords: "yes no on off",
	},
	{
		names: "toml", files: ".toml cargo.lock poetry.lock", comments: "#", letters: "-.", keys: "=", sections: true,
		quotes: []quote{{`"""`, `"""`, multi}, {`'''`, `'''`, multi | raw}, double, {`'`, `'`, raw}},
	},
	{
		names: "ini cfg conf dosini properties systemd desktop",
		files: ".ini .cfg .conf .properties .service .socket .timer .desktop .editorconfig .gitconfig", comments: "# ;",
		letters: "-.", keys: "=:", sections: true, quotes: []quote{double},
	},
	{
		names: "make makefile mk just", files: ".mk makefile gnumakefile justfile", comments: "#", letters: "-./", marks: "$",
		keys: ":=", quotes: []quote{double, single},
		keywords: "define else endef endif export ifdef ifeq ifndef ifneq include override unexport",
	},
	{
		names: "cmake", files: ".cmake cmakelists.txt", comments: "#", marks: "$", fold: true,
		quotes:   []quote{{`"`, `"`, multi | holes}},
		keywords: "else elseif endforeach endfunction endif endmacro endwhile foreach function if macro while",
	},
	{
		names: "dockerfile docker containerfile", files: ".dockerfile dockerfile containerfile", comments: "#", letters: "-",
		marks: "$", quotes: []quote{double, single},
		keywords: "ADD ARG AS CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL MAINTAINER ONBUILD RUN SHELL " +
			"STOPSIGNAL USER VOLUME WORKDIR",
	},
	{
		names: "nix", files: ".nix", comments: "#", open: "/*", close: "*/", letters: "-'", keys: "=", hole: "${",
		quotes:   []quote{{`''`, `''`, multi | raw | holes}, withCode},
		keywords: "assert else if import in inherit let or rec then with",
	},
	{
		names: "hcl terraform tf tfvars", files: ".tf .tfvars .hcl", comments: "# //", open: "/*", close: "*/", letters: "-",
		keys: "=", hole: "${", quotes: []quote{{`"`, `"`, holes}},
		keywords: "data dynamic for for_each if in locals module output provider resource terraform variable",
		types:    "any bool list map number object set string",
	},
	{
		names: "haskell hs", files: ".hs .lhs", comments: "--", open: "{-", close: "-}", nested: true, letters: "'",
		capitals: true, quotes: []quote{double, letter},
		keywords: "case class data default deriving do else family forall foreign if import in infix infixl infixr " +
			"instance let module newtype of qualified then type where",
	},
	{
		names: "ocaml ml fsharp f# fs", files: ".ml .mli .fs .fsi .fsx", comments: "//", open: "(*", close: "*)",
		nested: true, letters: "'", capitals: true, quotes: []quote{{`"`, `"`, multi}, letter},
		keywords: "and as assert begin class do done downto else end exception external for fun function functor if in " +
			"include inherit inline initializer lazy let match member method module mutable namespace new object of open " +
			"override private rec sig struct then to try type val virtual when while with yield",
		types: "array bool char exn float int list option string unit",
	},
	{
		names: "elixir ex exs", files: ".ex .exs", comments: "#", letters: "?!", marks: ":", hole: "#{", capitals: true,
		decorators: true, quotes: []quote{triple, withCode, {`'`, `'`, holes}},
		keywords: "after alias and case catch cond def defimpl defmacro defmodule defp defprotocol defstruct do else end " +
			"fn for if import in not or quote raise receive require rescue try unless unquote use when with",
	},
	{
		names: "erlang erl", files: ".erl .hrl .escript", comments: "%", capitals: true,
		quotes: []quote{{`"`, `"`, multi}, single},
		keywords: "after and andalso begin case catch div else end export fun if module not of or orelse receive rem try " +
			"when xor",
	},
	{
		names: "clojure clj cljs edn", files: ".clj .cljs .cljc .edn", comments: ";", letters: "-?!*+/<>=.&%", marks: ":",
		lisp: true, quotes: []quote{{`"`, `"`, multi}},
		keywords: "case cond def defmacro defmethod defmulti defn defn- defprotocol defrecord do doseq fn for if if-let " +
			"if-not let letfn loop ns or and not recur require throw try when when-let when-not",
	},
	{
		names: "lisp scheme elisp emacs-lisp common-lisp racket scm", files: ".lisp .el .scm .rkt .cl", comments: ";",
		open: "#|", close: "|#", letters: "-?!*+/<>=.&%", marks: ":", lisp: true, quotes: []quote{{`"`, `"`, multi}},
		keywords: "and begin case cond define define-syntax defmacro defparameter defun defvar do else if lambda let let* " +
			"letrec loop not or progn quote require set! setq unless when while",
	},
	{
		names: "r rscript", files: ".r .rmd", comments: "#", letters: ".",
		quotes:   []quote{{`"`, `"`, multi}, {`'`, `'`, multi}},
		keywords: "break else for function if in library next repeat return while TRUE FALSE NA",
	},
	{
		names: "julia jl", files: ".jl", comments: "#", open: "#=", close: "=#", nested: true, letters: "!", hole: "$(",
		capitals: true, decorators: true, quotes: []quote{triple, withCode, letter},
		keywords: "abstract baremodule begin break catch const continue do else elseif end export finally for function " +
			"global if import in let local macro module mutable primitive quote return struct try type using where while",
	},
	{
		names: "protobuf proto proto3", files: ".proto", comments: "//", open: "/*", close: "*/",
		quotes: []quote{double, single},
		keywords: "enum extend extensions import map message oneof option optional package public repeated required " +
			"reserved returns rpc service stream syntax",
		types: "bool bytes double fixed32 fixed64 float int32 int64 sfixed32 sfixed64 sint32 sint64 string uint32 uint64",
	},
	{
		names: "graphql gql", files: ".graphql .gql", comments: "#", keys: ":", loose: true, marks: "$", capitals: true,
		decorators: true, quotes: []quote{triple, double},
		keywords: "directive enum extend fragment implements input interface mutation on query scalar schema subscription " +
			"type union",
	},
	{names: "markdown md mdx", files: ".md .markdown .mdx", mode: lines},
	{names: "diff patch udiff", files: ".diff .patch", mode: lines},
}
