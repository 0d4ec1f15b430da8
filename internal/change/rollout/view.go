package rollout

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/untrusted/plaintext"
)

// View is how a state is shown.
type View struct {
	// Width is how many columns there are.
	Width int
	// Colours tells that the output shows them.
	Colours bool
	// Program is what people type before "rollout".
	Program string
}

// maxSteps is how many steps are listed.
const maxSteps = 12

// Show writes all that people want to know, the most important line first.
func (v View) Show(out io.Writer, s State) error {
	var b strings.Builder
	for i, line := range v.wrap(fmt.Sprintf("%s: %s", orUnknown(s.Phase), s.Message)) {
		if i == 0 {
			line = v.colour(s.Phase, line)
		}
		b.WriteString(line + "\n")
	}
	fmt.Fprintf(
		&b, "daemonset %s/%s   stable %s   target %s\n", s.Namespace, s.DaemonSet, orNone(s.StableRevision),
		orNone(s.TargetRevision),
	)
	for _, text := range slices.Concat(s.Content.Lines(), s.Images.Lines(), s.Fetch.Lines()) {
		for _, line := range v.wrap(text) {
			b.WriteString(line + "\n")
		}
	}
	if s.Nodes > 0 {
		fmt.Fprintf(&b, "%s %s\n", v.bar(s, 20), amounts(s))
	}
	v.steps(&b, s)
	if i := len(s.FailedRevisions) - 1; i >= 0 {
		f := s.FailedRevisions[i]
		for _, line := range v.wrap(fmt.Sprintf("last failure: revision %s %s (%s)", f.Revision, f.Why, f.Action)) {
			b.WriteString(line + "\n")
		}
	}
	if next := v.next(s); next != "" {
		b.WriteString(next + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// Line is the state in one line that fits.
func (v View) Line(s State) string {
	text := fmt.Sprintf("%s %s %s", v.bar(s, 20), orUnknown(s.Phase), amounts(s))
	if s.Message != "" {
		text += ": " + s.Message
	}
	return v.cut(text)
}

// Change is the state in one line of a log, whole.
func Change(s State) string {
	text := fmt.Sprintf("daemonset %s/%s: %s", s.Namespace, s.DaemonSet, orUnknown(s.Phase))
	if s.Nodes > 0 {
		text += ", " + amounts(s)
	}
	if s.Message != "" {
		text += ": " + s.Message
	}
	return text
}

func amounts(s State) string {
	text := fmt.Sprintf("%d of %d nodes done, %d failed", s.Done, s.Nodes, s.Failed)
	if s.Unavailable > 0 {
		text += fmt.Sprintf(", %d unavailable", s.Unavailable)
	}
	return text
}

func (v View) bar(s State, width int32) string {
	full := int32(0)
	if s.Nodes > 0 {
		full = int32(int64(s.Done) * int64(width) / int64(s.Nodes))
	}
	return "[" + strings.Repeat("#", int(full)) + strings.Repeat("-", int(width-full)) + "]"
}

// steps lists the steps around the present one.
func (v View) steps(b *strings.Builder, s State) {
	if len(s.Steps) == 0 {
		return
	}
	at := 0
	for i := range s.Steps {
		if s.Steps[i].Name == s.Step {
			at = i
		}
	}
	first := max(0, min(at-maxSteps/2, len(s.Steps)-maxSteps))
	last := min(len(s.Steps), first+maxSteps)
	fmt.Fprintf(b, "  %-34s %8s %8s %8s %11s\n", "step", "nodes", "done", "failed", "unavailable")
	if first > 0 {
		fmt.Fprintf(b, "  ... %d steps before\n", first)
	}
	for i := first; i < last; i++ {
		step, mark := &s.Steps[i], " "
		if step.Name == s.Step {
			mark = ">"
		}
		fmt.Fprintf(b, "%s %-34s %8d %8d %8d %11d%s\n", mark, shorten(step.Name, 34), step.Nodes, step.Done, step.Failed,
			step.Unavailable, fetches(step))
	}
	if more := len(s.Steps) - last; more > 0 {
		fmt.Fprintf(b, "  ... %d steps more\n", more)
	}
}

// fetches says how many nodes of a step fetch images, and have them; "" if none.
func fetches(s *v1alpha1.StepStatus) string {
	if s.Fetching+s.Fetched == 0 {
		return ""
	}
	return fmt.Sprintf("  %d fetching, %d fetched", s.Fetching, s.Fetched)
}

// next says what somebody can do where the rollout goes on by nobody else's doing.
func (v View) next(s State) string {
	command := func(verb string) string {
		return fmt.Sprintf("    %s rollout %s daemonset/%s -n %s", v.Program, verb, s.DaemonSet, s.Namespace)
	}
	switch {
	case s.Phase == v1alpha1.PhaseWaitingForApproval:
		return "To let the next step begin:\n" + command("approve")
	case s.Phase == v1alpha1.PhasePaused && s.Spec.Paused:
		return "To go on:\n" + command("resume")
	case s.Phase == v1alpha1.PhaseHalted && s.StableRevision != "":
		return "Change the template; or go back, or try again:\n" + command("abort") + "\n" + command("retry")
	case s.Phase == v1alpha1.PhaseHalted, s.Phase == v1alpha1.PhaseRolledBack:
		return "Change the template, or try again:\n" + command("retry")
	}
	return ""
}

// colour marks a line by what the phase asks of people.
func (v View) colour(phase v1alpha1.Phase, line string) string {
	code := ""
	switch phase {
	case v1alpha1.PhaseComplete:
		code = "32"
	case v1alpha1.PhaseHalted, v1alpha1.PhaseRolledBack:
		code = "31"
	case v1alpha1.PhaseWaitingForApproval, v1alpha1.PhasePaused:
		code = "33"
	}
	if !v.Colours || code == "" {
		return line
	}
	return "\x1b[" + code + "m" + line + "\x1b[0m"
}

// wrap breaks a text between words so that it fits; lines after the first are indented.
func (v View) wrap(text string) []string { return plaintext.Wrap(text, v.Width, "", "    ") }

// cut shortens a line so that it fits.
func (v View) cut(text string) string {
	return shorten(strings.Join(strings.Fields(text), " "), v.Width-1)
}

func shorten(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:max(most-3, 0)]) + "..."
}

func orUnknown(p v1alpha1.Phase) string {
	if p == "" {
		return "Unknown"
	}
	return string(p)
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}
