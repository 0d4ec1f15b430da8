package judge

import (
	"slices"
	"time"
)

// lately is how long before it is noted the webhook may have been unsure.
const lately = 4 * time.Second

// heard is a history in which the webhook counts as silent where it was unsure what a pod is to be: what is promised of
// pods that are made while nobody answers is promised of those too.
func heard(all []Entry) []Entry {
	out, silent := []Entry{}, time.Time{}
	for i, e := range all {
		if e.Silent {
			silent = e.At
		}
		if e.Answers {
			silent = time.Time{}
		}
		out = append(out, e)
		if !e.Unsure || !silent.IsZero() || slices.ContainsFunc(all[:i], func(before Entry) bool {
			return (before.Silent || before.Answers) && e.At.Sub(before.At) <= lately
		}) {
			continue
		}
		at := slices.IndexFunc(out, func(before Entry) bool { return e.At.Sub(before.At) <= lately })
		out = slices.Insert(out, at, Entry{At: out[at].At, Silent: true})
		out = append(out, Entry{At: e.At, Answers: true})
	}
	return out
}
