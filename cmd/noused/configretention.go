package main

import (
	"math"
	"strconv"
	"strings"
	"time"

	"noused/internal/protocol"
)

// retention is what is removed by itself, the section [retention], which only the
// file can have. Zero removes nothing.
type retention struct {
	SessionsOlder, ToolOutputOlder                time.Duration
	SessionsLarger, ToolOutputLarger, AuditLarger int64                // bytes
	Said                                          protocol.PruneLimits // as the file says it
}

// Bounds of [retention]. A minute written for a month removes nothing.
const (
	minKeep     = time.Hour
	maxKeep     = 36500 * day24
	minKeepSize = 1 << 20
	maxKeepSize = 1 << 60
	day24       = 24 * time.Hour
)

func (r *resolver) retention() (keep retention) {
	age := func(key string) (time.Duration, string) {
		v, from := r.file.find("retention." + key)
		text, _, ok := r.asText(v, from)
		if !ok {
			return 0, ""
		}
		d, ok := parseAge(text)
		switch {
		case !ok:
			r.fail(from, "%q is no duration, want one like 90d, 12h or 1d12h", text)
		case d < minKeep || d > maxKeep:
			r.fail(from, "%s is out of bounds, want 1h to 36500d; m are minutes", text)
		}
		return d, text
	}
	size := func(key string) (int64, string) {
		v, from := r.file.find("retention." + key)
		n := r.asSize(v, from, minKeepSize, maxKeepSize, 0)
		if n == 0 {
			return 0, ""
		}
		return n, formatSize(n)
	}
	keep.SessionsOlder, keep.Said.SessionsOlder = age("sessions_older")
	keep.SessionsLarger, keep.Said.SessionsLarger = size("sessions_larger")
	keep.ToolOutputOlder, keep.Said.ToolOutputOlder = age("tool_output_older")
	keep.ToolOutputLarger, keep.Said.ToolOutputLarger = size("tool_output_larger")
	keep.AuditLarger, keep.Said.AuditLarger = size("audit_larger")
	return keep
}

// parseAge reads a duration that may begin with days.
func parseAge(text string) (time.Duration, bool) {
	var days time.Duration
	if digits, rest, found := strings.Cut(text, "d"); found {
		n, err := strconv.ParseUint(digits, 10, 31)
		if err != nil || n > math.MaxInt64/uint64(2*day24) {
			return 0, false
		}
		if days, text = time.Duration(n)*day24, rest; rest == "" {
			return days, true
		}
	}
	d, err := time.ParseDuration(text)
	return days + d, err == nil && d >= 0 && days+d >= 0
}
