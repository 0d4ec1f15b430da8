// Package news says what is told of a rollout when its status changes; pure.
package news

import (
	"fmt"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/pinning"
	"github.com/everynode/everynode/internal/controller/daemonset/course/words"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
)

// Of is what is new in a status. It is told once, with the status itself.
func Of(target action.Target, was, is *v1alpha1.DaemonSetRolloutStatus) (out []action.Action) {
	say := func(warning bool, event, format string, args ...any) {
		out = append(out, &action.RolloutNews{Target: target, Warning: warning, Event: event,
			Message: fmt.Sprintf(format, args...)})
	}
	moves := is.TargetRevision != is.StableRevision
	if is.TargetRevision != was.TargetRevision && moves && is.StableRevision != "" {
		say(false, "RolloutStarted", "revision %s is on its way to %s; stable is %s", is.TargetRevision,
			words.Nodes(countNodes(is)), is.StableRevision)
	}
	if is.Step != was.Step && is.Step != "" {
		say(false, "RolloutStepOpened", "step %s has begun: %s", is.Step, words.Nodes(nodesOfStep(is)))
	}
	template := content.TemplateOf(is.TargetRevision)
	if found := pinning.Of(is.Images, template); found != nil && pinning.Of(was.Images, template) == nil {
		if got := digests(found); got != "" {
			say(false, "RolloutImagesPinned", "template %s: node %s got %s", template, found.Node, got)
		}
	}
	if is.Phase != was.Phase || is.TargetRevision != was.TargetRevision {
		phase(say, target.Name, is, was.Phase == "")
	}
	return out
}

// phase tells what the rollout does now; begins says that it has just begun to do anything.
func phase(say func(warning bool, event, format string, args ...any), name string,
	is *v1alpha1.DaemonSetRolloutStatus, begins bool) {
	how := "daemonset/" + name
	until := "until the template changes, or everynode rollout retry " + how
	switch is.Phase {
	case v1alpha1.PhaseComplete:
		if !begins {
			say(false, "RolloutComplete", "%s", is.Message)
		}
	case v1alpha1.PhaseSoaking:
		say(false, "RolloutSoaking", "%s", is.Message)
	case v1alpha1.PhaseWaitingForApproval:
		say(false, "RolloutWaitsForApproval", "%s: everynode rollout approve %s", is.Message, how)
	case v1alpha1.PhaseOutsideWindow:
		say(false, "RolloutOutsideWindow", "%s", is.Message)
	case v1alpha1.PhasePaused:
		say(true, "RolloutPaused", "%s", is.Message)
	case v1alpha1.PhaseHalted:
		say(true, "RolloutHalted", "%s; all nodes stay as they are %s", is.Message, until)
	case v1alpha1.PhaseRolledBack:
		say(true, "RolloutRolledBack", "%s; all nodes go back to revision %s %s", is.Message, is.StableRevision, until)
	}
}

// digests names the first of a template's images that were found out, with their digests; "" if none was.
func digests(t *v1alpha1.PinnedTemplate) string {
	const most = 3
	var named []string
	more := 0
	for _, i := range t.Images {
		switch {
		case i.Digest == "":
		case len(named) == most:
			more++
		default:
			named = append(named, i.Image+" as "+i.Digest)
		}
	}
	text := strings.Join(named, ", ")
	if more > 0 {
		text += fmt.Sprintf(", and %d more images", more)
	}
	return text
}

func countNodes(s *v1alpha1.DaemonSetRolloutStatus) (n int) {
	for i := range s.Steps {
		n += int(s.Steps[i].Nodes)
	}
	return n
}

func nodesOfStep(s *v1alpha1.DaemonSetRolloutStatus) int {
	for i := range s.Steps {
		if s.Steps[i].Name == s.Step {
			return int(s.Steps[i].Nodes)
		}
	}
	return 0
}
