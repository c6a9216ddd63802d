package doctor

import "testing"

// A socket that systemd has left when it stopped the unit is no trouble: the unit takes it
// when it is started. Another one is.
func TestTheSocketOfAStoppedUnitIsNotLeftOver(t *testing.T) {
	for stream, trouble := range map[string]int{"%t/s": 0, "%t/%i": 0, "%t/other": 1, "%h/s": 1} {
		w := newWorld(t)
		w.units(w.at("bin/good"))
		w.RuntimeDir = w.at("run")
		w.write("more-units/noused@.socket", "[Socket]\nListenStream="+stream+"\n", 0o600)
		ln := w.listen("run/s")
		ln.SetUnlinkOnClose(false)
		w.must(ln.Close())
		if got := w.findings(false); len(got) != trouble {
			t.Errorf("%s: got %+v", stream, got)
		}
	}
}
