package main

import "strings"

const pictureLogin = `package web

// logIn answers the form.
func (s *Site) logIn(name, password string) error {
	user, ok := s.users[name]
	if !ok || !user.fits(password) {
		return errRefused
	}
	return s.begin(user)
}
`

// pictureScenes are what the model says where the request has a text, call by call; the first that fits
// counts.
var pictureScenes = []struct {
	has   string
	skip  int // results of tools that were there before
	steps []pictureStep
}{
	{"How does the login work", 0, []pictureStep{
		{
			text: "Three of us look at once.", tool: "agent",
			args: `{"description":"Where the form is answered","agent":"explore","prompt":"Find what answers the form."}`,
			calls: []string{
				`{"description":"How a session is kept","agent":"explore","prompt":"Find out how a session is kept."}`,
				`{"description":"What the tests cover","agent":"explore","prompt":"Find out what the tests cover."}`,
			},
		},
		{text: "The form is answered by `logIn`, which refuses a wrong name and a wrong password alike."},
	}},
	{"what answers the form", 0, []pictureStep{
		{tool: "grep", args: `{"pattern":"logIn"}`},
		{text: "`logIn` in login.go answers it."},
	}},
	{"how a session is kept", 0, []pictureStep{
		{tool: "read", args: `{"path":"login.go"}`},
		{text: "A session is a row in a table; the cookie holds its number", holds: "explore"},
	}},
	{"what the tests cover", 0, []pictureStep{
		{tool: "find", args: `{"pattern":"*_test.go"}`},
		{text: "There is no test of a wrong password", holds: "explore"},
	}},
	{"Carry out the plan", 1, []pictureStep{
		{
			tool: "edit", args: `{"path":"login.go","old_text":"\tif !ok || !user.fits(password) {\n","new_text":` +
				`"\tif !ok {\n\t\ts.log.Info(\"no such user\", name)\n\t\treturn errRefused\n\t}\n\tif !user.fits(password) {` +
				`\n\t\ts.log.Info(\"wrong password\", name)\n"}`,
		},
		{text: "Done: the log tells the two apart, the answer does not."},
	}},
	{"Tell a wrong password", 0, []pictureStep{
		{tool: "read", args: `{"path":"login.go"}`},
		{text: "`logIn` refuses both in one condition. The plan:\n\n1. Split the condition in two.\n2. Log which of " +
			"them it was.\n3. Keep the answer to the form the same, so that nobody can find out names."},
	}},
	{"the background child session", 1, []pictureStep{
		{text: "The benchmark has ended: **1.8 ms** an entry, as before."},
	}},
	{"while the benchmark runs", 0, []pictureStep{
		{tool: "agent", args: `{"description":"Run the benchmark","background":true,"prompt":"Run it ten times."}`},
		{text: "`Take` returns the oldest entry. The benchmark goes on, and I tell you what came of it."},
	}},
	{"Run it ten times", 0, []pictureStep{
		{text: "Ten runs: 1.8 ms an entry.", holds: "background"},
	}},
}

// pictureSceneOf is what the model says to a request, nil where no scene fits.
func pictureSceneOf(body string) *pictureStep {
	for _, s := range pictureScenes {
		if strings.Contains(body, s.has) {
			n := strings.Count(body, `"role":"tool"`) - s.skip
			return &s.steps[min(max(n, 0), len(s.steps)-1)]
		}
	}
	return nil
}

// picturesOfChildren takes the pictures of child sessions.
func picturesOfChildren(s picturedScreen, holds map[string]chan struct{}, picture func(picturedScreen, string)) {
	begin := func(title, text string) {
		s.say("/new " + title)
		s.Wait("· " + title)
		s.say(text)
	}
	begin("How the login works", "How does the login work? Explore it.")
	s.Wait("✓ agent  Where the form", "cookie holds its number", "There is no test of a wrong password")
	s.WaitFor("what was used", filled)
	s.Press("ctrl+l")
	picture(s, "tui-children")
	close(holds["explore"])
	s.Wait("refuses a wrong name", "idle")

	begin("Refused logins", "/plan Tell a wrong password from an unknown name in the log.")
	s.Wait("the plan is ready")
	s.say("/do")
	s.Wait("the log tells the two apart", "idle")
	s.WaitFor("what was used", filled)
	s.Press("ctrl+l")
	s.WaitGone("not recorded")
	picture(s, "tui-plan")

	begin("Benchmark", "What does Take do? Answer while the benchmark runs.")
	s.Wait("The benchmark goes on", "idle")
	close(holds["background"])
	s.Wait("1.8 ms an entry, as before", "idle")
	s.Wait("✓ agent  Run the benchmark")
	s.WaitFor("what was used", filled)
	s.Press("ctrl+l")
	picture(s, "tui-background")
}
