package fitness

import (
	"strings"
	"testing"
)

// A server gives way where it is older than what is stored, and only to a server that lives and knows more.
func TestWhoGivesWay(t *testing.T) {
	strange := []string{"rolloutpolicy a/p", "rolloutpolicy a/q", "nodestartup n", "daemonsetrollout a/b"}
	for name, c := range map[string]struct {
		knows   int
		living  []Server
		strange []string
		to      string
	}{
		"alone":                                   {1, []Server{{"me", 1}}, strange, ""},
		"nobody is known to live":                 {1, nil, strange, ""},
		"all are of one version":                  {1, []Server{{"me", 1}, {"b", 1}, {"c", 1}}, strange, ""},
		"the others are older":                    {2, []Server{{"me", 2}, {"b", 1}, {"c", 0}}, strange, ""},
		"one is newer":                            {1, []Server{{"me", 1}, {"b", 2}, {"c", 1}}, strange, "b"},
		"some are newer: the one that knows most": {1, []Server{{"me", 1}, {"b", 2}, {"d", 3}, {"c", 3}}, strange, "c"},
		"one is newer, and all is known here":     {1, []Server{{"me", 1}, {"b", 2}}, nil, ""},
		"a program of before there were numbers":  {0, []Server{{"me", 0}, {"b", 1}}, strange[:1], "b"},
	} {
		got := GivesWay(c.knows, c.living, c.strange)
		if (got != "") != (c.to != "") || got != "" && (!strings.Contains(got, "server "+c.to+" ") || !strings.Contains(got, "rolloutpolicy a/p")) {
			t.Errorf("%s: it says %q, want that it gives way to %q", name, got, c.to)
		}
		if len(c.strange) > 3 && got != "" && !strings.Contains(got, "and 1 more") {
			t.Errorf("%s: %q does not say how many there are", name, got)
		}
	}
}
