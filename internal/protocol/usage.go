package protocol

import (
	"strings"
	"time"
)

// GetUsageParams is the payload of get_usage.
type GetUsageParams struct {
	By       UsageBy `json:"by,omitzero" enum:"day,model,session,folder" doc:"what the rows are for; default day"`
	TimeZone string  `json:"time_zone,omitzero" doc:"whose days they are: the name of a time zone, Europe/Berlin, or an offset, +02:00; default: the daemon's"`
}

// UsageBy is what a row of a usage is for.
type UsageBy string

// The rows that there may be.
const (
	ByDay     UsageBy = "day"
	ByModel   UsageBy = "model"
	BySession UsageBy = "session"
	ByFolder  UsageBy = "folder"
)

// UsageReport answers get_usage: days the oldest first, the others by tokens, the
// most first. Total counts what no row has, too.
type UsageReport struct {
	By        UsageBy    `json:"by" enum:"day,model,session,folder"`
	Rows      []UsageRow `json:"rows"`
	Total     UsageSum   `json:"total"`
	Truncated bool       `json:"truncated" doc:"there are more than 10000 rows"`
	LeftOut   []string   `json:"left_out" doc:"what cannot be read and is not counted, a sentence for each session"`
}

// UsageRow is what one day, model, session or folder has used. One of the names is
// there; with SessionID also Title, if it has any, and Workdir.
type UsageRow struct {
	Day       string `json:"day,omitzero" doc:"2026-02-12"`
	Model     string `json:"model,omitzero" doc:"as the messages name it, or unknown"`
	SessionID string `json:"session_id,omitzero"`
	Title     string `json:"title,omitzero"`
	Workdir   string `json:"workdir,omitzero"`
	UsageSum
}

// UsageSum is what model calls have used. Cost is that of the calls whose price
// was known.
type UsageSum struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	CachedTokens int64 `json:"cached_tokens" doc:"those of input_tokens that came from the provider's cache"`
	Cost         *Cost `json:"cost,omitzero" doc:"absent where no price is known"`
}

func (UsageReport) replyType() string { return "usage" }

func (p GetUsageParams) validate() *Error {
	return oneOf("by", p.By, "", ByDay, ByModel, BySession, ByFolder)
}

// Location is a time zone by its name, or by its offset as RFC 3339 has it. ""
// is this process's own.
func Location(name string) (*time.Location, *Error) {
	if name == "" {
		return time.Local, nil
	}
	if strings.HasPrefix(name, "+") || strings.HasPrefix(name, "-") {
		if at, err := time.Parse("-07:00", name); err == nil {
			_, offset := at.Zone()
			return time.FixedZone(name, offset), nil
		}
	} else if name != "Local" && len(name) <= 64 {
		if loc, err := time.LoadLocation(name); err == nil {
			return loc, nil
		}
	}
	return nil, badField("time_zone",
		"%.80q is no time zone that is known here; want a name like Europe/Berlin, or an offset like +02:00", name)
}
