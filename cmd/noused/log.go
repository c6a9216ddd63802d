package main

import (
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"noused/internal/detach"
)

// logOutput is the daemon's log, and how much it says.
type logOutput struct {
	*zap.Logger
	level zap.AtomicLevel
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
	return &logOutput{zap.New(zapcore.NewCore(enc, zapcore.Lock(detach.Bounded(stderr, logDir)), atomic)), atomic}
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
