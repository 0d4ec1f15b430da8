package judge

import (
	"strings"
	"testing"
	"time"
)

var begin = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// story is a history in the making.
type story struct {
	all []Entry
	now time.Time
}

func (s *story) add(entries ...Entry) *story {
	for _, e := range entries {
		e.At = s.now
		s.all = append(s.all, e)
	}
	return s
}

func (s *story) after(d time.Duration) *story {
	s.now = s.now.Add(d)
	return s
}

var steps = []string{"canary", "zones/a"}

func rollout(stable, target, step, phase string, failed ...string) Entry {
	return Entry{Rollout: &Rollout{
		Set: "ds", Stable: stable, Target: target, Step: step, Phase: phase, Steps: steps, Failed: failed,
	}}
}

func pod(uid, node, revision string, is ...string) Entry {
	p := &Pod{UID: uid, Set: "ds", Node: node, Revision: revision, Image: "x:1"}
	e := Entry{Pod: p}
	for _, i := range is {
		switch i {
		case "available":
			p.Available = true
		case "going":
			p.Going = true
		case "gone":
			e.Gone = true
		default:
			p.Reads = append(p.Reads, i)
		}
	}
	return e
}

func node(name, step string) Entry { return Entry{Node: &Node{Name: name, Step: step, Ready: true}} }

// answered is a fleet of three nodes, of which the first is the canary, whose webhook has answered for long.
func answered() *story {
	s := &story{now: begin}
	return s.add(node("n1", "canary"), node("n2", "zones/a"), node("n3", "zones/a"),
		Entry{Limit: &Limit{"ds", 1}}, Entry{Answers: true}).after(time.Minute)
}

var (
	silent  = Entry{Silent: true}
	answers = Entry{Answers: true}
	says    = Entry{Told: "ds"}
)

func gone(name string) Entry { return Entry{Copy: name, Gone: true} }

func TestJudge(t *testing.T) {
	late := 10 * time.Second
	canary, zones := rollout("old", "new", "canary", ""), rollout("old", "new", "zones/a", "")
	halted := rollout("old", "new", "canary", "Halted", "new")
	back := rollout("old", "new", "zones/a", "RolledBack", "new")
	first, early := pod("a", "n1", "new"), pod("a", "n2", "new")
	begun := func() *story { return answered().add(canary) }
	pinned := rollout("old", "new", "zones/a", "Progressing")
	pinned.Rollout.Digests = map[string]string{"new": "sha256:1"}
	digest := pod("a", "n1", "new")
	digest.Pod.Image = "x@sha256:1"
	for name, c := range map[string]struct {
		is *story
		// want is the rule that is broken; "" if none is.
		want string
	}{
		"its step has begun":         {begun().add(first), ""},
		"its step has not begun":     {begun().add(early), "revision"},
		"an old one where it has":    {begun().after(late).add(pod("a", "n1", "old")), "revision"},
		"the status before a moment": {begun().add(zones).after(time.Second).add(pod("a", "n2", "old")), ""},
		"the status long before":     {begun().add(zones).after(late).add(pod("a", "n2", "old")), "revision"},
		"the status comes after":     {begun().add(early, zones), "revision"},
		"another content": {
			answered().add(rollout("old.1", "old.2", "canary", ""), pod("a", "n2", "old.2")),
			"revision",
		},
		"the author's objects": {
			answered().add(rollout("old.1", "old.1", "canary", ""), pod("a", "n2", "old")),
			"revision",
		},
		"content counts for nothing": {
			answered().add(rollout("old", "old", "canary", ""), pod("a", "n2", "old.1")),
			"",
		},
		"nobody answers": {answered().add(silent, canary, early), ""},
		"somebody has just come back": {
			answered().add(silent, canary).add(answers).after(time.Second).add(early),
			"",
		},
		"its digest is known":         {answered().add(pinned, digest), ""},
		"a tag, and its digest known": {answered().add(pinned).after(late).add(first), "revision"},
		"a tag, as nothing was known": {answered().add(zones, pinned).after(time.Second).add(first), ""},
		"what failed, on the canary":  {answered().add(halted).after(late).add(first), "revision failed"},
		"what failed is forgotten":    {answered().add(halted, canary).after(late).add(first), "failed"},
		"what failed is tried again": {
			answered().add(halted, Entry{Retries: "ds"}, canary).after(late).add(first),
			"",
		},
		"wrong, and told": {
			answered().add(silent, canary, early, answers).after(late).add(says).after(2 * Known).add(says),
			"",
		},
		"wrong, and not told": {
			answered().add(silent, canary, early, answers).after(2 * Known).add(says),
			"known",
		},
		"what failed came, and not told": {
			answered().add(halted).after(late).add(silent, first, answers).after(2 * Known).add(answers),
			"known",
		},
		"what failed was there before": {
			begun().add(first, silent, halted, answers).after(2 * Known).add(answers),
			"",
		},
		"told before": {
			answered().add(silent, canary, early, says, answers).after(2 * Known).add(answers),
			"known",
		},
		"wrong, and deleted": {
			answered().add(silent, canary, early, answers, Entry{Touches: "a"}).after(2 * Known).add(answers),
			"",
		},
		"right meanwhile": {
			answered().add(silent, canary, early, answers, zones).after(2 * Known).add(answers),
			"",
		},
		"one is taken": {
			answered().add(pod("a", "n2", "old", "available"), pod("a", "n2", "old", "available", "going")),
			"",
		},
		"two are taken": {twoTaken(Entry{}, Entry{}), "limit"},
		"two at once without a word": {
			answered().
				add(pod("a", "n2", "old", "available"), pod("b", "n3", "old", "available"), pod("a", "n2", "", "gone"),
					pod("b", "n3", "", "gone")),
			"limit",
		},
		"the first is back":           {twoTaken(pod("c", "n2", "new", "available"), Entry{}), ""},
		"the first is not ready":      {twoTaken(pod("c", "n2", "new"), Entry{}), "limit"},
		"the first one's node breaks": {twoTaken(Entry{Node: &Node{Name: "n2", Step: "zones/a"}}, Entry{}), ""},
		"the second is the test's":    {twoTaken(Entry{Touches: "b"}, Entry{}), ""},
		"the limit is two":            {twoTaken(Entry{Limit: &Limit{"ds", 2}}, Entry{}), ""},
		"the limit was two just now": {
			twoTaken(Entry{Limit: &Limit{"ds", 2}}, Entry{Limit: &Limit{"ds", 1}}),
			"",
		},
		"one before the way back": {twoTaken(zones, back), ""},
		"both on the way back": {
			answered().
				add(zones, pod("a", "n2", "new", "available"), pod("b", "n3", "new", "available"),
					back, pod("a", "n2", "new", "available", "going"),
					back, pod("b", "n3", "new", "available", "going")),
			"limit",
		},
		"a copy goes while it is read": {
			answered().add(Entry{Copy: "c"}, pod("a", "n1", "old", "c"), gone("c")),
			"copy",
		},
		"a copy goes when nobody does": {
			answered().
				add(Entry{Copy: "c"}, pod("a", "n1", "old", "c"), pod("a", "n1", "old", "c", "gone"), gone("c")),
			"",
		},
		"a pod reads what is gone": {
			answered().add(Entry{Copy: "c"}, gone("c"), pod("a", "n1", "old", "c")),
			"copy",
		},
		"a pod reads the author's": {answered().add(pod("a", "n1", "old", "settings")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var have []string
			for _, f := range Judge(c.is.all) {
				have = append(have, f.Rule)
				t.Log(f)
			}
			if strings.Join(have, " ") != c.want {
				t.Errorf("faults of %q, want %q", have, c.want)
			}
		})
	}
}

// twoTaken has us delete two available daemons, with something before each.
func twoTaken(first, second Entry) *story {
	return answered().add(pod("a", "n2", "old", "available"), pod("b", "n3", "old", "available"),
		pod("a", "n2", "old", "available", "going"), pod("a", "n2", "old", "gone"), first, second,
		pod("b", "n3", "old", "available", "going"), pod("b", "n3", "old", "gone"))
}

func TestUnsettled(t *testing.T) {
	well := func() *story {
		return answered().add(rollout("new", "new", "zones/a", "Complete"), pod("a", "n1", "new", "available"),
			pod("b", "n2", "new", "available", "c"), pod("c", "n3", "new", "available"),
			Entry{Copy: "c"}, Entry{Copy: "list"})
	}
	silentNode := Entry{Node: &Node{Name: "n3", Step: "zones/a"}}
	for name, c := range map[string]struct {
		is   *story
		want string
	}{
		"all is well":                  {well(), ""},
		"no rollout":                   {answered(), "ds has no rollout"},
		"not complete":                 {well().add(rollout("old", "new", "zones/a", "Soaking")), "ds is Soaking"},
		"a node has no daemon":         {well().add(pod("c", "n3", "new", "gone")), "node n3 has 0 daemons"},
		"a node has another one":       {well().add(pod("c", "n3", "old", "available")), "node n3 has 0 daemons"},
		"a node has two":               {well().add(pod("d", "n3", "new", "available")), "node n3 has 2 daemons"},
		"a node that is out of order":  {well().add(silentNode, pod("c", "n3", "new", "gone")), ""},
		"a copy that nobody reads":     {well().add(Entry{Copy: "d"}), "copy d is left over"},
		"a copy that nobody reads now": {well().add(pod("b", "n2", "new", "available")), "copy c is left over"},
	} {
		t.Run(name, func(t *testing.T) {
			have := Unsettled(c.is.all, []string{"ds"}, func(name string) bool { return name == "list" })
			if text := strings.Join(have, "; "); (c.want == "") != (text == "") || !strings.HasPrefix(text, c.want) {
				t.Errorf("it says %q, want %q", text, c.want)
			}
		})
	}
}
