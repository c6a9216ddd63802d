package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"noused/internal/regular"
)

// ledger is what all model calls of a day have cost, kept in a file of the state
// directory so that a restart does not forget it. The day is the one of the
// daemon's time zone.
type ledger struct {
	path string
	now  func() time.Time
	log  *zap.Logger

	mu    sync.Mutex
	spent spending
}

// spending is the file.
type spending struct {
	Day  string `json:"day"`
	Cost int64  `json:"cost_nano_usd"`
}

const (
	ledgerName = "spent.json"
	maxLedger  = 4 << 10 // bytes
)

// openLedger reads the file where there is one. A limit that nobody can count
// towards is none: a file that cannot be read is an error.
func openLedger(dir string, now func() time.Time, log *zap.Logger) (*ledger, error) {
	l := &ledger{path: filepath.Join(dir, ledgerName), now: now, log: log}
	text, err := regular.Read(l.path, maxLedger)
	if err == nil {
		err = json.Unmarshal(text, &l.spent)
	}
	if err == nil && l.spent.Cost < 0 {
		err = errors.New("its cost is less than none")
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s, which [limits] day_cost needs, cannot be read; remove it to count from nothing: %w",
			l.path, err)
	}
	return l, nil
}

func day(at time.Time) string { return at.Local().Format(time.DateOnly) }

// today is what the day of that time has cost so far.
func (l *ledger) today(at time.Time) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spent.Day != day(at) {
		return 0
	}
	return l.spent.Cost
}

// add counts a call, and writes the sum to the disk. It blocks for that; a disk
// that takes nothing is told to the log, and the sum counts until the daemon
// stops.
func (l *ledger) add(cost int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if today := day(l.now()); l.spent.Day != today {
		l.spent = spending{Day: today}
	}
	l.spent.Cost += cost
	if err := l.write(); err != nil {
		l.log.Error("what model calls cost cannot be kept", zap.Error(err))
	}
}

func (l *ledger) write() error {
	text, err := json.Marshal(l.spent)
	if err != nil {
		return err
	}
	return regular.Replace(l.path, append(text, '\n'), 0o600)
}

// keepSpending has the cost of calls counted, where there is a limit for a day.
func (m *models) keepSpending(cfg Config, log *zap.Logger) error {
	if cfg.Limits.DayCost == 0 {
		return nil
	}
	l, err := openLedger(cfg.StateDir, time.Now, log.Named("limits"))
	if err == nil {
		m.ledger = l
	}
	return err
}

// today is what the day of that time has cost, 0 where nobody counts.
func (m *models) today(at time.Time) int64 {
	if m.ledger == nil {
		return 0
	}
	return m.ledger.today(at)
}
