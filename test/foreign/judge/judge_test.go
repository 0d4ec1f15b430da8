package judge

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var recorded = flag.String("history", "", "file with a round's history, one entry a line, to be judged")

// TestRecorded judges a history that a round has left behind, as after a change of the judge.
func TestRecorded(t *testing.T) {
	if *recorded == "" {
		t.Skip("-history names a file")
	}
	f, err := os.Open(*recorded)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []Entry
	for lines := json.NewDecoder(f); ; {
		var e Entry
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	for _, f := range Judge(all) {
		t.Error(f)
	}
}

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
		Entry{Limit: &Limit{Set: "ds", Max: 1}}, Entry{Answers: true}).after(time.Minute)
}

var (
	silent  = Entry{Silent: true}
	answers = Entry{Answers: true}
	says    = Entry{Told: "ds"}
	unsure  = Entry{Unsure: true}
	one     = Entry{Counted: &Counted{"ds", 1}}
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
		"what failed, and it is given back": {
			answered().add(halted, policyGone, stored("", false)).after(late).add(first),
			"",
		},
		"what failed is tried again": {
			answered().add(halted, Entry{Retries: "ds"}, canary).after(late).add(first),
			"",
		},
		"wrong, and told": {
			answered().add(silent, canary, early, answers).after(late).add(says, one).after(2 * Known).add(says),
			"",
		},
		"wrong, and put right": {
			answered().add(silent, canary, early, answers).after(late).add(says, pod("a", "n2", "new", "gone")).
				after(2 * Known).add(says),
			"",
		},
		"wrong, and told, and not counted": {
			answered().add(silent, canary, early, pod("b", "n3", "new"), answers).after(late).add(says, one).
				after(2 * Known).add(says),
			"counted",
		},
		"said to be wrong, and made well":        {begun().add(first, one), "alarm"},
		"said to be wrong, and went long ago":    {answered().add(silent, first, answers, pod("a", "n1", "", "gone")).after(2 * late).add(one), "alarm"},
		"said to be wrong, and went just now":    {answered().add(silent, first, answers, pod("a", "n1", "", "gone")).after(late).add(one), ""},
		"another DaemonSet's were made unheard":  {answered().add(silent, Entry{Pod: &Pod{UID: "o", Set: "other", Node: "n1"}}, answers, one), "alarm"},
		"made before its step, as it was unsure": {begun().after(late).add(early).after(time.Second).add(unsure, says, one), ""},
		"... long before":                        {begun().after(late).add(early).after(late).add(unsure, says, one), "revision alarm"},
		"... and after that":                     {begun().after(late).add(unsure).after(late).add(early, says, one), "revision alarm"},
		"... and is not told of": {
			begun().after(late).add(early).after(time.Second).add(unsure, one).after(2 * Known).add(answers),
			"known",
		},
		"made without content, and not told": {
			answered().add(rollout("old.1", "old.2", "canary", ""), silent, pod("a", "n2", "old"), answers, one).
				after(2 * Known).add(answers),
			"known",
		},
		"wrong, and not told": {
			answered().add(silent, canary, early, answers, one).after(2 * Known).add(says),
			"known",
		},
		"what failed came, and not told": {
			answered().add(halted).after(late).add(silent, first, answers, one).after(2 * Known).add(answers),
			"known",
		},
		"what failed was there before": {
			begun().add(first, silent, halted, answers).after(2 * Known).add(answers),
			"",
		},
		"told before": {
			answered().add(silent, canary, early, says, answers, one).after(2 * Known).add(answers),
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
		"the limit is two":            {twoTaken(Entry{Limit: &Limit{Set: "ds", Max: 2}}, Entry{}), ""},
		"the limit was two just now": {
			twoTaken(Entry{Limit: &Limit{Set: "ds", Max: 2}}, Entry{Limit: &Limit{Set: "ds", Max: 1}}),
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
		"a pod of content reads it":           {answered().add(Entry{Copy: "c"}, pod("a", "n1", "old.1", "c"), pod("b", "n2", "old.1", "c")), ""},
		"a pod of content reads the author's": {answered().add(pod("a", "n1", "old.1", "settings")), "content"},
		"a pod of content reads another's": {
			answered().add(Entry{Copy: "c"}, Entry{Copy: "d"}, pod("a", "n1", "old.1", "c"), pod("b", "n2", "old.1", "d")),
			"content",
		},
		"nobody answers, and it reads the author's": {answered().add(silent, pod("a", "n1", "old.1", "settings")), ""},
		"a pod reads the author's":                  {answered().add(pod("a", "n1", "old", "settings")), ""},
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

var (
	policyGone = Entry{Policy: "ds", Gone: true}
	policy     = Entry{Policy: "ds"}
)

func stored(placement string, taken bool) Entry {
	return Entry{Stored: &Stored{Set: "ds", Placement: placement, Taken: taken}}
}

func down(name, rack string) Entry {
	return Entry{Node: &Node{Name: name, Step: "zones/a", Rack: rack}}
}

func racked(name, step, rack string) Entry {
	return Entry{Node: &Node{Name: name, Step: step, Rack: rack, Ready: true, Labels: []string{"room=" + rack}}}
}

func TestJudgePlaces(t *testing.T) {
	fleet := func(limits ...Entry) *story {
		s := &story{now: begin}
		return s.add(racked("n1", "canary", "x"), racked("n2", "zones/a", "x"), racked("n3", "zones/a", "y"),
			racked("n4", "zones/b", "y"), pod("n1", "n1", "old", "available"), pod("n2", "n2", "old", "available"),
			pod("n3", "n3", "old", "available"), pod("n4", "n4", "old", "available")).
			add(limits...).add(answers).after(time.Minute)
	}
	limit := func(of string, most int) Entry { return Entry{Limit: &Limit{"ds", of, most}} }
	take := func(s *story, nodes ...string) *story {
		for _, n := range nodes {
			s.add(pod(n, n, "old", "available", "going"), pod(n, n, "", "gone"))
		}
		return s
	}
	early := func() *story {
		return fleet().add(pod("n4", "n4", "", "gone"), rollout("old", "new", "zones/a", ""), silent,
			pod("e", "n4", "new", "available"), answers)
	}
	ill := func(s *story) *story { return s.add(down("n3", "y"), pod("n3", "n3", "old")) } // n3, and its daemon
	outdated, lost := pod("f", "n2", "older", "available"), Entry{Node: &Node{Name: "n4", Step: "zones/b", Rack: "y"}}
	late, zones, back := 10*time.Second, rollout("old", "new", "zones/a", ""), rollout("old", "new", "zones/a", "RolledBack", "new")
	for name, c := range map[string]struct {
		is   *story
		want string
	}{
		"two of one step":                   {take(fleet(limit("zones", 1)), "n2", "n3"), "limit"},
		"two of two steps":                  {take(fleet(limit("zones", 1)), "n3", "n4"), ""},
		"one of another wave":               {take(fleet(limit("zones", 1)), "n1", "n2"), ""},
		"two of one rack":                   {take(fleet(limit("rack", 1)), "n3", "n4"), "limit"},
		"two of two racks":                  {take(fleet(limit("rack", 1)), "n2", "n3"), ""},
		"there is no limit any more":        {take(fleet(limit("rack", 1), limit("rack", 0)), "n3", "n4"), ""},
		"another is out of order":           {take(ill(fleet(limit("rack", 1))).after(late), "n4"), "limit"},
		"another is, with a daemon":         {take(fleet(limit("rack", 1)).add(down("n3", "y")).after(late), "n4"), ""},
		"another falls out of order":        {take(ill(fleet(limit("rack", 1))).after(time.Second), "n4"), ""},
		"another is in order again":         {take(fleet(limit("rack", 1)).add(down("n3", "y"), racked("n3", "zones/a", "y")).after(late), "n4"), ""},
		"one out of order, in no rack":      {take(ill(fleet(limit("zones", 1))).after(late), "n2"), ""},
		"one out of order, on the way back": {take(ill(fleet(limit("rack", 1)).add(back)).after(late), "n4"), ""},
		"its DaemonSet leaves the other":    {take(take(fleet(limit("", 1)), "n3").add(stored("room=x", true)), "n2"), ""},
		"it is not taken over":              {take(fleet(limit("", 1)).add(stored("", false)), "n3", "n4"), ""},
		"it is for none of them any more":   {take(fleet(limit("", 1)).add(stored("room=x", true)), "n3", "n4"), ""},

		"somebody is changed before who is early": {take(early().after(2*late), "n2"), "first"},
		"who is early goes back first":            {take(early().add(pod("e", "n4", "", "gone")).after(2*late), "n2"), ""},
		"who is early is on a node that is lost":  {take(early().add(lost).after(2*late), "n2"), ""},
		"it goes back as well":                    {take(early().add(back).after(2*late), "n2"), ""},
		"nobody has known for long":               {take(early().after(4*time.Second), "n2"), ""},
		"what goes is neither of both":            {early().add(outdated).after(2 * late).add(pod("f", "n2", "older", "gone")), ""},

		"its policy goes, and who lost it gets the stable one": {
			fleet().add(stored("", true), zones, policyGone).after(2 * late).add(pod("a", "n2", "old")), ""},
		"its policy goes, and who lost it gets the target": {
			fleet().add(stored("", true), zones, policyGone).after(2 * late).add(pod("a", "n2", "new")), "policy"},
		"its policy has just gone": {
			fleet().add(stored("", true), zones, policyGone).after(time.Second).add(pod("a", "n2", "new")), ""},
		"its policy goes, and somebody lets it go on": {
			fleet().add(stored("", true), zones, policyGone, Entry{Frees: "ds"}).after(2 * late).add(pod("a", "n2", "new")), ""},
		"its policy goes, and the change goes on": {
			take(fleet().add(stored("", true), zones, policyGone).after(2*late), "n2"), "policy"},
		"its policy goes, and comes back": {
			take(fleet().add(stored("", true), zones, policyGone, policy).after(2*late), "n2"), ""},
		"it is given back": {
			take(fleet().add(stored("", false), zones, policyGone).after(2*late), "n2"), ""},

		"other nodes":              {fleet().add(stored("", true), stored("room=x", true)), "placement"},
		"other nodes, approved":    {fleet().add(stored("", true), Entry{Approves: &Stored{Set: "ds", Placement: "room=x"}}, stored("room=x", true)), ""},
		"others than approved":     {fleet().add(stored("", true), Entry{Approves: &Stored{Set: "ds", Placement: "room=x"}}, stored("room=y", true)), "placement"},
		"nobody has taken it over": {fleet().add(stored("", false), stored("room=x", false)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var have []string
			for _, f := range Judge(c.is.all) {
				have = append(have, f.Rule)
				t.Log(f)
			}
			slices.Sort(have)
			if strings.Join(have, " ") != c.want {
				t.Errorf("faults of %q, want %q", have, c.want)
			}
		})
	}
}

func TestUncorrected(t *testing.T) {
	canary := rollout("old", "new", "canary", "")
	wrong := func(phase string) *story {
		return answered().add(rollout("old", "new", "canary", phase), silent, pod("a", "n2", "new", "available"),
			pod("b", "n1", "new", "available"), pod("c", "n3", "old", "available"), answers)
	}
	for name, c := range map[string]struct {
		is   *story
		want string
	}{
		"one has it too early":       {wrong("Soaking"), "node n2 has new of ds, which is Soaking"},
		"it is halted":               {wrong("Halted"), ""},
		"it is paused":               {wrong("Paused"), ""},
		"nobody answers":             {wrong("Soaking").add(silent), ""},
		"it goes":                    {wrong("Soaking").add(pod("a", "n2", "new", "available", "going")), ""},
		"its node is lost":           {wrong("Soaking").add(down("n2", "")), ""},
		"its turn comes":             {wrong("Soaking").add(rollout("old", "new", "zones/a", "")), ""},
		"another node has none":      {wrong("Soaking").add(pod("c", "n3", "old")), ""},
		"another daemon is there":    {wrong("Soaking").add(pod("c", "n3", "old"), Entry{Pod: &Pod{UID: "d", Set: "other", Node: "n3", Available: true}}), ""},
		"its policy goes":            {wrong("Soaking").add(policyGone), ""},
		"another DaemonSet has none": {wrong("Soaking").add(canary, Entry{Pod: &Pod{UID: "d", Set: "other", Node: "n3"}}), "node n2"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Join(Uncorrected(c.is.all), "; ")
			if (c.want == "") != (text == "") || !strings.HasPrefix(text, c.want) {
				t.Errorf("it says %q, want %q", text, c.want)
			}
		})
	}
}

func TestUnsettled(t *testing.T) {
	well := func() *story {
		return answered().add(rollout("new", "new", "zones/a", "Complete"), pod("a", "n1", "new", "available"),
			pod("b", "n2", "new", "available", "c"), pod("c", "n3", "new", "available"),
			Entry{Copy: "c"})
	}
	silentNode := Entry{Node: &Node{Name: "n3", Step: "zones/a"}}
	for name, c := range map[string]struct {
		is   *story
		want string
	}{
		"all is well":                 {well(), ""},
		"no rollout":                  {answered(), "ds has no rollout"},
		"not complete":                {well().add(rollout("old", "new", "zones/a", "Soaking")), "ds is Soaking"},
		"a node has no daemon":        {well().add(pod("c", "n3", "new", "gone")), "node n3 has 0 daemons"},
		"a node has another one":      {well().add(pod("c", "n3", "old", "available")), "node n3 has 0 daemons"},
		"a node has two":              {well().add(pod("d", "n3", "new", "available")), "node n3 has 2 daemons"},
		"a node that is out of order": {well().add(silentNode, pod("c", "n3", "new", "gone")), ""},
		"a node that it is not for":   {well().add(racked("n3", "zones/a", "y"), stored("room=x", true)), "node n1 has 1 daemons"},
		"nodes that it is for": {well().add(racked("n1", "canary", "x"), racked("n2", "zones/a", "x"), stored("room=x", true),
			pod("c", "n3", "new", "gone")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			have := Unsettled(c.is.all, []string{"ds"})
			if text := strings.Join(have, "; "); (c.want == "") != (text == "") || !strings.HasPrefix(text, c.want) {
				t.Errorf("it says %q, want %q", text, c.want)
			}
		})
	}
}

func TestLeftover(t *testing.T) {
	is := answered().add(Entry{Copy: "c"}, Entry{Copy: "d"}, pod("a", "n1", "new", "c"))
	if have := Leftover(is.all); !slices.Equal(have, []string{"d"}) {
		t.Errorf("left over are %v, want d", have)
	}
	is.add(pod("a", "n1", "new", "gone"), gone("d"))
	if have := Leftover(is.all); !slices.Equal(have, []string{"c"}) {
		t.Errorf("left over are %v, want c", have)
	}
}

func TestJudgeGates(t *testing.T) {
	closed, opens := Entry{Node: &Node{Name: "n9", Step: "zones/a", Ready: true, Closed: true}}, node("n9", "zones/a")
	fleet := func() *story { return answered().add(Entry{Starts: []string{"ds"}}) }
	joins := func() *story { return fleet().add(closed) }
	bound := Entry{Bound: &Bound{"web", "n9"}}
	ready, lost := pod("a", "n9", "new", "available"), pod("a", "n9", "", "gone")
	left := Entry{Node: &Node{Name: "n9"}, Gone: true}
	other := Entry{Pod: &Pod{UID: "o", Set: "other", Node: "n9", Available: true}}
	for name, c := range map[string]struct {
		is   *story
		want string
	}{
		"it is closed, and opens":            {joins().add(ready, opens, bound), ""},
		"it joins open":                      {fleet().add(opens), "gate"},
		"it joins open, and nobody answers":  {fleet().add(silent, opens), ""},
		"there is no NodeStartup yet":        {answered().add(opens), ""},
		"it opens without its daemon":        {joins().after(time.Minute).add(opens), "gate"},
		"its daemon was lost just now":       {joins().add(ready, lost).after(time.Second).add(opens), ""},
		"its daemon was lost long ago":       {joins().add(ready, lost).after(time.Minute).add(opens), "gate"},
		"its daemon is none of the list":     {joins().add(other).after(time.Minute).add(opens), "gate"},
		"it is for other nodes":              {joins().add(stored("room=x", true)).after(time.Minute).add(opens), ""},
		"a pod is bound while it is closed":  {joins().add(bound), "gate"},
		"... once its machine starts again":  {joins().add(ready, opens, closed, bound), ""},
		"... of the node that was there":     {joins().add(ready, opens, left, closed, bound), "gate"},
		"the machine starts without daemons": {joins().add(ready, opens, closed, lost).after(time.Minute).add(opens), "gate"},
	} {
		t.Run(name, func(t *testing.T) { c.is.breaks(t, c.want) })
	}
	if have := Unsettled(joins().all, nil); !slices.Equal(have, []string{"node n9 is closed"}) {
		t.Errorf("not settled are %v", have)
	}
}

// breaks wants just these rules to be broken.
func (s *story) breaks(t *testing.T, want string) {
	t.Helper()
	var have []string
	for _, f := range Judge(s.all) {
		have = append(have, f.Rule)
		t.Log(f)
	}
	if strings.Join(have, " ") != want {
		t.Errorf("faults of %q, want %q", have, want)
	}
}

func TestJudgeRamps(t *testing.T) {
	says := func(target, step, phase string) Entry {
		e := rollout("old", target, step, phase)
		e.Rollout.Steps = []string{"canary", "more/1", "more/2", "more/3"}
		return e
	}
	fleet := func() *story {
		return answered().add(node("n4", "zones/b"), node("n5", "zones/b")).after(time.Minute)
	}
	first, second := says("new", "more/1", ""), says("new", "more/2", "")
	a, b, c, d := pod("a", "n2", "new"), pod("b", "n3", "new"), pod("c", "n4", "new"), pod("d", "n5", "new")
	begun := func() *story { return fleet().add(first, a) }
	before, lost := pod("z", "n3", "new"), pod("z", "n3", "", "gone")
	left := Entry{Node: &Node{Name: "n2"}, Gone: true}
	for name, c := range map[string]struct {
		is   *story
		want string
	}{
		"one in the first step":               {begun(), ""},
		"two in the first step":               {begun().add(b), "ramp"},
		"the same node again":                 {begun().add(pod("a", "n2", "", "gone"), pod("b", "n2", "new")), ""},
		"the canary as well":                  {begun().add(pod("b", "n1", "new")), ""},
		"three in the second step":            {begun().add(second, b, c), ""},
		"four in the second step":             {begun().add(second, b, c, d), "ramp"},
		"before the first step":               {fleet().add(says("new", "canary", ""), a), "revision ramp"},
		"two, as one has joined":              {begun().add(node("n6", "zones/a"), b), ""},
		"two, as the first one has gone":      {begun().add(left, b), ""},
		"who had it before":                   {fleet().add(before, first, a, lost, b), ""},
		"each target counts for itself":       {begun().add(says("newer", "more/1", ""), pod("b", "n3", "newer")), ""},
		"the stable one, in a step that runs": {fleet().add(second, pod("a", "n2", "old")), ""},
		"the target, once it goes back": {
			fleet().add(says("new", "more/2", "RolledBack")).after(time.Minute).add(a),
			"revision",
		},
	} {
		t.Run(name, func(t *testing.T) { c.is.breaks(t, c.want) })
	}
}
