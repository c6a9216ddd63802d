package main

import (
	"cmp"
	"os"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"noused/internal/detach"
	"noused/internal/protocol"
)

// logOutput is the daemon's log, how much it says, and the errors among it.
type logOutput struct {
	*zap.Logger
	level  zap.AtomicLevel
	errors *lastErrors
	to     string // the log's file, or "stderr"
}

// newLogger writes to stderr: for people on a terminal, JSON elsewhere. A file of
// logDir is kept small.
func newLogger(stderr *os.File, logDir string, level zapcore.Level) *logOutput {
	var enc zapcore.Encoder
	if _, err := unix.IoctlGetTermios(int(stderr.Fd()), unix.TCGETS); err == nil {
		cfg := zap.NewDevelopmentEncoderConfig()
		cfg.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		cfg.EncodeLevel = zapcore.CapitalColorLevelEncoder
		enc = zapcore.NewConsoleEncoder(cfg)
	} else {
		cfg := zap.NewProductionEncoderConfig()
		cfg.EncodeTime = zapcore.RFC3339NanoTimeEncoder
		enc = zapcore.NewJSONEncoder(cfg)
	}
	atomic := zap.NewAtomicLevelAt(level)
	last := new(lastErrors)
	log, path := detach.Bounded(stderr, logDir)
	core := &errorCore{Core: zapcore.NewCore(enc, zapcore.Lock(log), atomic), last: last}
	return &logOutput{zap.New(core), atomic, last, cmp.Or(path, "stderr")}
}

// errorCore keeps the errors among what it writes.
type errorCore struct {
	zapcore.Core
	last *lastErrors
	with []zapcore.Field
}

// With is that of zapcore.Core, and so are Check and Write.
func (c *errorCore) With(fields []zapcore.Field) zapcore.Core {
	return &errorCore{c.Core.With(fields), c.last, slices.Concat(c.with, fields)}
}

func (c *errorCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

func (c *errorCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if e.Level >= zapcore.ErrorLevel {
		c.last.add(loggedError(e, slices.Concat(c.with, fields)))
	}
	return c.Core.Write(e, fields)
}

// loggedError is an error of the log in one sentence.
func loggedError(e zapcore.Entry, fields []zapcore.Field) protocol.LoggedError {
	out := protocol.LoggedError{At: e.Time.UTC(), Message: e.Message}
	for _, f := range fields {
		switch f.Key {
		case "session_id":
			out.SessionID = f.String
		case "error", "cause":
			err, _ := f.Interface.(error)
			if text := f.String; err != nil {
				out.Message += ": " + err.Error()
			} else if text != "" {
				out.Message += ": " + text
			}
		}
	}
	return out
}

// levelSignals change how much the log says: SIGUSR1 one level more, SIGUSR2 one
// level less.
var levelSignals = []os.Signal{unix.SIGUSR1, unix.SIGUSR2}

// turn changes the level as a signal asks, and says so before or after, where it is
// shown. There is nothing beyond debug and error.
func (l *logOutput) turn(s os.Signal) {
	before := l.level.Level()
	after := min(before+1, zapcore.ErrorLevel)
	if s == unix.SIGUSR1 {
		after = max(before-1, zapcore.DebugLevel)
		l.level.SetLevel(after)
	}
	if shown := min(before, after); shown < zapcore.ErrorLevel {
		l.Log(shown, "signal: the level of the log", zap.Stringer("signal", s), zap.Stringer("log_level", after))
	}
	l.level.SetLevel(after)
}
