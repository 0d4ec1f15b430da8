package copies

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/test/chaos/history"
	"github.com/everynode/everynode/test/chaos/history/revision"
)

// Given is how often running pods were given another content.
func Given(r history.Record) (n int) {
	last := map[types.UID]string{}
	for _, e := range r.Events {
		if to := e.Object.GetAnnotations()[revision.LiveAnnotation]; to != "" && to != last[e.Object.GetUID()] {
			last[e.Object.GetUID()] = to
			n++
		}
	}
	return n
}

// Told is the rule that what Secrets hold is in nothing but Secrets.
const Told = "what a Secret holds is told"

// Secrecy finds traces of what Secrets hold in all objects but Secrets, and in what was written by the way: the log of
// the control plane, and the lines of the round's journal.
func Secrecy(r history.Record, traces []string, written ...string) (found []history.Violation) {
	holds := func(text string) bool {
		for _, t := range traces {
			if strings.Contains(text, t) {
				return true
			}
		}
		return false
	}
	for _, e := range r.Events {
		if _, is := e.Object.(*corev1.Secret); is {
			continue
		}
		text, err := json.Marshal(e.Object)
		if err != nil {
			panic("copies: plain API types do not marshal: " + err.Error())
		}
		if holds(string(text)) {
			found = append(found, history.Violation{
				Rule: Told, Revision: e.Revision, Objects: []types.UID{e.Object.GetUID()},
				Message: fmt.Sprintf("%T %s has it", e.Object, e.Object.GetName()),
			})
		}
	}
	for _, text := range written {
		for line := range strings.Lines(text) {
			if holds(line) {
				// Up to what the Secret holds: a report must not tell it either.
				for _, t := range traces {
					line, _, _ = strings.Cut(line, t)
				}
				found = append(found, history.Violation{Rule: Told, Message: "it follows this: " + strings.TrimSpace(line)})
			}
		}
	}
	return found
}
