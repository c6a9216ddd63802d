package tui

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"noused/internal/tui/jobs"
	"noused/internal/tui/slash"

	tea "charm.land/bubbletea/v2"

	"noused/internal/client/actions"
	"noused/internal/protocol"
	"noused/internal/tui/pick"
)

// The list of sessions to choose from: of one daemon as it has listed them, of several
// as they list them, and anew whenever something happens there.

// listed is what a daemon has listed.
type listed struct {
	over *overlay
	of   *listing
	list []protocol.SessionInfo
	err  error
}

func newSessions(m *model, list slash.SessionList) *overlay {
	o := &overlay{chosen: (*model).chooseSession, searches: len(list.Matches) == 0 &&
		slash.Refusal(m.link, protocol.SearchSessions, protocol.SearchSessionsParams{}) == nil}
	for _, s := range m.sites {
		o.lists = append(o.lists, &listing{site: s})
	}
	if len(o.lists) == 1 {
		o.lists[0].list, o.lists[0].matches = list.Sessions, list.Matches
	}
	o.picker = pick.New("Sessions", o.items(m), pick.With(m.pickLook()), pick.Current(m.key(m.site, m.state.SessionID)),
		pick.Deletes("session"), pick.Previews())
	if list.Query != "" {
		o.picker.Update(tea.PasteMsg{Content: list.Query})
	}
	o.box = o.picker
	if len(o.lists) > 1 {
		for _, l := range o.lists {
			o.list(m, l)
		}
	}
	return o
}

func (o *overlay) items(m *model) []pick.Item {
	if len(o.lists) > 1 {
		return o.merged(m)
	}
	return pick.Sessions(o.lists[0].list, o.lists[0].matches, m.opts.Now(), m.opts.home())
}

// merged are the sessions of all daemons, trees as one: those that wait for somebody, a line for each
// daemon that has not listed its own, then those of the folder that is shown and a line for
// each daemon that has none, then the others.
func (o *overlay) merged(m *model) []pick.Item {
	type tree struct { // whose rows stay together
		info protocol.SessionInfo
		rank int
	}
	type row struct {
		pick.Item
		of *tree
	}
	var rows []row
	for _, l := range o.lists {
		infos := map[string]protocol.SessionInfo{}
		for _, s := range l.list {
			infos[s.SessionID] = s
		}
		own := pick.Sessions(l.list, l.matches, m.opts.Now(), m.opts.home())
		of := &tree{}
		for _, item := range own {
			info := infos[item.ID]
			if item.Branch == "" {
				of = &tree{info: info, rank: 3}
				switch {
				case info.SessionID == "": // found by its text
					of.rank = 4
				case l.site == m.site && info.Workdir == m.state.Workdir:
					of.rank = 2
				}
			}
			if of.rank > 0 && info.Need() == protocol.NeedAnswer {
				of.info, of.rank = info, 0
			}
			item.ID, item.Detail = m.key(l.site, item.ID), l.site.opts.Host+"\t"+item.Detail
			rows = append(rows, row{item, of})
		}
		switch note := l.note(m); {
		case note.Note:
			rows = append(rows, row{note, &tree{rank: 1}})
		case len(own) == 0 && len(l.list) > 0: // a blank session leads there
			note.ID, note.Title, note.Detail = m.key(l.site, l.list[0].SessionID), "(no session yet)", note.Title
			rows = append(rows, row{note, &tree{rank: 2}})
		}
	}
	slices.SortStableFunc(rows, func(x, y row) int {
		return cmp.Or(x.of.rank-y.of.rank, protocol.ByNeed(x.of.info, y.of.info))
	})
	items := make([]pick.Item, len(rows))
	for i, r := range rows {
		items[i] = r.Item
	}
	return items
}

// note is the line of a daemon that is away, or has not listed its sessions yet; it has
// Note then.
func (l *listing) note(m *model) pick.Item {
	host := l.site.opts.Host
	item := pick.Item{ID: m.key(l.site, ""), Title: host, Note: true}
	switch why := cmp.Or(m.lost(l.site), l.problem); {
	case why != nil:
		item.Mark, item.Bad, item.Detail = "away", true, strings.TrimPrefix(slash.Describe(why), host+": ")
	case !l.told:
		item.Mark = "connecting"
	default:
		item.Note = false
	}
	return item
}

// list asks a daemon for its sessions, once at a time.
func (o *overlay) list(m *model, l *listing) {
	if l.listing {
		l.again = true
		return
	}
	l.listing = true
	m.keep(m.at(l.site), func(ctx context.Context, p slash.Place) tea.Msg {
		if l.told && !jobs.Pause(ctx, refreshEvery) {
			return nil
		}
		list, err := slash.ListSessions(ctx, p)
		return listed{o, l, list, err}
	})
}

func (m *model) listed(r listed) {
	l := r.of
	l.listing, l.problem = false, r.err
	if r.err == nil {
		l.list, l.told = r.list, true
	}
	if r.over != m.over {
		return
	}
	if r.err != nil {
		m.later(l.site, r.err)
	}
	if l.again {
		l.again = false
		m.over.list(m, l)
	}
	m.over.show(m)
}

func (o *overlay) show(m *model) { o.picker.SetItems(o.items(m)) }

// changed shows that something has happened at a daemon; relist: of its sessions, too.
func (o *overlay) changed(m *model, at *site, relist bool) {
	if o == nil || len(o.lists) < 2 {
		return
	}
	for _, l := range o.lists {
		if l.site == at && relist {
			o.list(m, l)
		}
	}
	o.show(m)
}

func (o *overlay) of(s *site) *listing {
	i := slices.IndexFunc(o.lists, func(l *listing) bool { return l.site == s })
	return o.lists[i]
}

func (m *model) chooseSession(c pick.Choice) tea.Cmd {
	at, id := m.of(c.IDs[0])
	if c.Action == pick.Choose {
		m.enterAt(at, id)
		return nil
	}
	o := m.over
	children := slices.ContainsFunc(o.of(at).list, func(s protocol.SessionInfo) bool {
		return s.Parent != nil && s.Parent.SessionID == id
	})
	m.keep(m.at(at), func(ctx context.Context, p slash.Place) tea.Msg {
		if _, err := actions.Delete(ctx, p, id, children); err != nil {
			return removed{over: o, err: err}
		}
		list, err := slash.ListSessions(ctx, p)
		return removed{o, o.of(at), list, err}
	})
	return nil
}

// enterAt shows a session, and makes it the active one of its daemon.
func (ob *outbox) enterAt(at *site, id string) {
	if ob.goal != nil && ob.offline != nil { // which may not come for long
		ob.goal = nil
		ob.stay()
	}
	ob.do("switch", func(ctx context.Context, p slash.Place) slash.Outcome {
		if p.Site != &at.opts.Site {
			p = at.opts.place()
		}
		o := slash.EnterSession(ctx, p, id)
		if o.Err == nil {
			o.Site = &at.opts.Site
		}
		return o
	})
}

// search looks for the filter's text in all sessions, one search of a daemon at a time.
func (o *overlay) search(m *model) {
	if o == nil || !o.searches {
		return
	}
	for _, l := range o.lists {
		if !l.asking && o.picker.Query() != l.asked {
			o.searchIn(m, l)
		}
	}
}

func (o *overlay) searchIn(m *model, l *listing) {
	l.asked, l.asking = o.picker.Query(), true
	query := l.asked
	m.keep(m.at(l.site), func(ctx context.Context, p slash.Place) tea.Msg {
		if len(query) < searchFrom || !jobs.Pause(ctx, typingPause) {
			return found{over: o, of: l}
		}
		limit := 200
		r, err := slash.Ask(ctx, p, protocol.SearchSessions, protocol.SearchSessionsParams{Text: query, Limit: &limit})
		if err != nil { // the titles are filtered all the same
			return found{over: o, of: l}
		}
		return found{o, l, r.Matches}
	})
}

func (m *model) found(f found) {
	f.of.asking, f.of.matches = false, f.matches
	if f.over == m.over {
		f.over.show(m)
		f.over.search(m)
	}
}

func (m *model) removed(r removed) {
	if r.err != nil {
		m.talk.Notice("error", slash.Describe(r.err))
		if m.over == r.over {
			m.over = nil // or nobody would see it
		}
		return
	}
	r.of.list = r.list
	r.over.show(m)
}

// askPreview asks for the preview that is on the screen, one at a time.
func (o *overlay) askPreview(m *model) {
	if o.lists == nil || o.previewed {
		return
	}
	key, ok := o.picker.NeedsPreview()
	if !ok {
		return
	}
	o.previewed = true
	at, id := m.of(key)
	m.keep(m.at(at), func(ctx context.Context, p slash.Place) tea.Msg {
		jobs.Pause(ctx, typingPause)
		r, err := slash.Ask(ctx, p, protocol.GetMessages, protocol.GetMessagesParams{
			Scope: protocol.Scope{SessionID: id},
			Limit: new(previewMessages),
		})
		if err != nil {
			return previewed{o, key, []string{slash.Describe(err)}}
		}
		return previewed{o, key, preview(r)}
	})
}

func (m *model) previewed(p previewed) {
	p.over.previewed = false
	p.over.picker.SetPreview(p.key, p.lines)
}
