// Package diagnosis decides what is wrong with a machine or a cluster, from what was seen
// of it, and which command mends it. It is pure; package doctor looks.
package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Severity is how much a finding matters.
type Severity string

const (
	// Problem is something that does not work, or soon will not.
	Problem Severity = "Problem"
	// Warning is something that may be meant so, and that somebody should know of.
	Warning Severity = "Warning"
)

// Finding is one thing that is wrong.
type Finding struct {
	// Check is the kind of thing that was looked at, such as disk or nodes.
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	// Subject is what it is about, such as node/worker-1.
	Subject string `json:"subject"`
	Message string `json:"message"`
	// Remedy is the command that mends it, or shows what will.
	Remedy string `json:"remedy"`
}

// findings collects what one check finds.
type findings struct {
	check string
	all   []Finding
}

func (f *findings) add(severity Severity, subject, remedy, format string, args ...any) {
	f.all = append(f.all, Finding{Check: f.check, Severity: severity, Subject: subject, Remedy: remedy,
		Message: fmt.Sprintf(format, args...)})
}

// inOrder puts problems first, and keeps the order otherwise.
func inOrder(all []Finding) []Finding {
	rank := map[Severity]int{Problem: 0, Warning: 1}
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(rank[a.Severity], rank[b.Severity]) })
	return all
}

// some names the first few of many.
func some(names []string) string {
	const most = 3
	slices.Sort(names)
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// long says how long something has lasted, as people do.
func long(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
}

// many says a number of things, in the words for one or for more of them.
func many(n int, one, more string) string {
	if n == 1 {
		return fmt.Sprintf(one, n)
	}
	return fmt.Sprintf(more, n)
}
