// Package words writes what is said of rollouts to people.
package words

import (
	"fmt"
	"time"

	"github.com/everynode/everynode/internal/untrusted/plaintext"
)

// longest is how many bytes are kept of words that come from elsewhere, such as what a webhook says: a
// condition has room for 32 KiB.
const longest = 1024

// Cut shortens words from elsewhere, at a letter.
func Cut(s string) string { return plaintext.Cut(s, longest, "…") }

// Colon puts a colon before words, if there are any.
func Colon(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}

// Such names one of so many, and says what there is to say about it.
func Such(many int, name, why string) string {
	if many > 1 {
		return fmt.Sprintf(", such as %s (%s)", name, why)
	}
	return fmt.Sprintf(": %s (%s)", name, why)
}

// UsedUp is said of a limit before the nodes that do not free it.
const UsedUp = "the limit is used up, and is not freed by "

// Clock writes a time for people.
func Clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

// OpensAt says when the next window opens.
func OpensAt(at time.Time) string {
	return "the next window opens at " + at.UTC().Format("Mon 2006-01-02 15:04 UTC")
}

// Have is a number of nodes that have something.
func Have(n int) string {
	if n == 1 {
		return "1 node has"
	}
	return fmt.Sprintf("%d nodes have", n)
}

// Soaking is a number of nodes that soak.
func Soaking(n int) string {
	if n == 1 {
		return "1 node soaks"
	}
	return fmt.Sprintf("%d nodes soak", n)
}

// Nodes is a number of nodes.
func Nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// Completed says what has been reached, and what has not: how many of the selected nodes have the revision, are out of
// order, are in maintenance, and wait for such a node in their domain.
func Completed(revision string, done, selected, faulty, away, waiting int) string {
	if selected == 0 {
		return "revision " + revision + " selects no node"
	}
	text := fmt.Sprintf("%d of %s have revision %s", done, Nodes(selected), revision)
	if faulty > 0 {
		text += fmt.Sprintf("; %d are out of order", faulty)
	}
	if away > 0 {
		text += fmt.Sprintf("; %d in maintenance", away)
	}
	if waiting > 0 {
		text += fmt.Sprintf("; %d wait for such a node in their domain", waiting)
	}
	return text
}
