package main

import (
	"context"
	"fmt"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"
)

// sayReady tells whoever has started the daemon, and waits, that both sockets answer.
// main sets it.
var sayReady = func() {}

// notify tells systemd a state; without systemd it does nothing.
func sdNotify(log *zap.Logger, state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		log.Warn("systemd could not be notified", zap.String("state", state), zap.Error(err))
	}
}

// watchdog tells systemd that the daemon is alive as long as ping makes its
// round trip, until ctx ends. Without a watchdog it only waits.
func watchdog(ctx context.Context, log *zap.Logger, ping func(context.Context) error) error {
	interval, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("systemd watchdog: %w", err)
	}
	if interval == 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(interval / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		within, cancel := context.WithTimeout(ctx, interval/3)
		err := ping(within)
		cancel()
		if err == nil {
			sdNotify(log, sd.SdNotifyWatchdog)
		} else if ctx.Err() == nil {
			log.Error("the hub does not answer; systemd will restart the daemon", zap.Error(err))
		}
	}
}
