// Package timeline puts together when a rollout did what, from what the API keeps anyway: events, conditions, the
// rollout's status, revisions, and who wrote last. Nothing is stored for it. It is pure.
package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/history"
)

// Tone is how much a moment asks of people.
type Tone string

// Good ended well, Waits needs somebody or something, Bad is a failure.
const (
	Plain Tone = ""
	Good  Tone = "ok"
	Waits Tone = "warn"
	Bad   Tone = "bad"
)

// Moment is something that happened.
type Moment struct {
	At time.Time `json:"at"`
	// What happened, in a few words, and Detail in the words of who told.
	What   string `json:"what"`
	Detail string `json:"detail,omitempty"`
	Tone   Tone   `json:"tone,omitempty"`
	// Seconds is how long it was until the next moment; until now, of the last one.
	Seconds int64 `json:"seconds"`
}

// Input is what the API keeps of one DaemonSet.
type Input struct {
	Now       time.Time
	DaemonSet *appsv1.DaemonSet
	// Rollout is nil where there is none.
	Rollout   *v1alpha1.DaemonSetRollout
	Revisions []*appsv1.ControllerRevision
	// Events are those of the DaemonSet.
	Events []corev1.Event
}

// words are what events are called, and their tones.
var words = map[string]struct {
	what string
	tone Tone
}{
	"RolloutStarted":          {"The change begins", Plain},
	"RolloutStepOpened":       {"A step begins", Plain},
	"RolloutImagesPinned":     {"Digests are known", Plain},
	"RolloutSoaking":          {"It soaks", Plain},
	"RolloutWaitsForApproval": {"It waits for approval", Waits},
	"RolloutOutsideWindow":    {"It waits for a window", Waits},
	"RolloutPaused":           {"It stands still", Waits},
	"RolloutHalted":           {"It is halted", Bad},
	"RolloutRolledBack":       {"It goes back", Bad},
	"RolloutComplete":         {"It is complete", Good},
}

// near is how far apart two accounts of the same moment may be: each has its own clock, and whole seconds.
const near = 5 * time.Second

// Most is how many moments are returned, the newest ones.
const Most = 200

// Of returns what happened, the oldest first.
func Of(in Input) []Moment {
	b := &builder{in: in}
	b.events()
	b.status()
	b.revisions()
	b.writers()
	slices.SortStableFunc(b.out,
		func(a, b Moment) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(rank(a), rank(b))) })
	out := b.out[max(0, len(b.out)-Most):]
	for i := range out {
		until := in.Now
		if i+1 < len(out) {
			until = out[i+1].At
		}
		out[i].Seconds = max(0, int64(until.Sub(out[i].At)/time.Second))
	}
	return out
}

// rank orders what happened in the same second: somebody writes, and then something comes of it.
func rank(m Moment) int {
	for i, what := range []string{written, made, "The change begins", "A step begins"} {
		if m.What == what {
			return i
		}
	}
	return 9
}

const (
	written = "Somebody wrote"
	made    = "A revision is made"
)

type builder struct {
	in  Input
	out []Moment
}

func (b *builder) add(at time.Time, what, detail string, tone Tone) {
	if !at.IsZero() {
		b.out = append(b.out, Moment{At: at.UTC(), What: what, Detail: detail, Tone: tone})
	}
}

// has reports whether the moment was told of already.
func (b *builder) has(at time.Time, what string, about string) bool {
	return slices.ContainsFunc(b.out, func(m Moment) bool {
		return m.What == what && strings.Contains(m.Detail, about) && m.At.Sub(at).Abs() <= near
	})
}

// events are the best account, as long as they are kept.
func (b *builder) events() {
	for i := range b.in.Events {
		e := &b.in.Events[i]
		word, known := words[e.Reason]
		if !known {
			continue
		}
		last := cmp.Or(e.LastTimestamp.Time, e.EventTime.Time, e.FirstTimestamp.Time, e.CreationTimestamp.Time)
		if first := e.FirstTimestamp.Time; e.Count > 1 && !first.IsZero() && !first.Equal(last) {
			b.add(first, word.what, e.Message, word.tone)
		}
		b.add(last, word.what, e.Message, word.tone)
	}
}

// status tells what the rollout itself remembers, where no event does any more.
func (b *builder) status() {
	r := b.in.Rollout
	if r == nil {
		return
	}
	for _, f := range r.Status.FailedRevisions {
		if at := f.Time.Time; !b.has(at, "It is halted", f.Why) && !b.has(at, "It goes back", f.Why) {
			b.add(at, "A revision fails", "revision "+b.number(f.Revision)+" "+f.Why, Bad)
		}
	}
	if at := r.Status.StepStarted; at != nil && !b.has(at.Time, "A step begins", r.Status.Step) {
		b.add(at.Time, "A step begins", "step "+r.Status.Step+" has begun", Plain)
	}
	for _, c := range r.Status.Conditions {
		if c.Status != metav1.ConditionTrue {
			continue
		}
		at := c.LastTransitionTime.Time
		switch c.Type {
		case v1alpha1.RolloutComplete:
			if !b.has(at, "It is complete", "") {
				b.add(at, "It is complete", c.Message, Good)
			}
		case v1alpha1.RolloutWaitingForApproval:
			if !b.has(at, "It waits for approval", "") {
				b.add(at, "It waits for approval", c.Message, Waits)
			}
		}
	}
}

// revisions are the templates that there were.
func (b *builder) revisions() {
	for _, r := range b.in.Revisions {
		detail := fmt.Sprintf("revision %d (%s)", r.Revision, history.HashOf(r))
		if cause := r.Annotations["kubernetes.io/change-cause"]; cause != "" {
			detail += ": " + cause
		}
		b.add(r.CreationTimestamp.Time, made, detail, Plain)
	}
}

// writers are who wrote the template, and who steered the rollout, last.
func (b *builder) writers() {
	b.fields(b.in.DaemonSet.ManagedFields, "f:template", "the template")
	if b.in.Rollout != nil {
		b.fields(b.in.Rollout.ManagedFields, "f:spec", "what is wanted of the rollout")
	}
}

func (b *builder) fields(entries []metav1.ManagedFieldsEntry, field, what string) {
	for _, m := range entries {
		if m.Subresource != "" || m.Time == nil || m.FieldsV1 == nil ||
			!strings.Contains(m.FieldsV1.String(), `"`+field+`"`) {
			continue
		}
		b.add(m.Time.Time, written, fmt.Sprintf("%s wrote %s last", m.Manager, what), Plain)
	}
}

// number names a revision by its number too.
func (b *builder) number(hash string) string {
	for _, r := range b.in.Revisions {
		if history.HashOf(r) == hash {
			return fmt.Sprintf("%d (%s)", r.Revision, hash)
		}
	}
	return hash
}
