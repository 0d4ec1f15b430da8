// Package counts says how often something came up in rounds that is judged where it does.
package counts

import (
	"fmt"
	"io"

	"github.com/everynode/everynode/test/chaos/copies"
	"github.com/everynode/everynode/test/chaos/history"
	"github.com/everynode/everynode/test/chaos/history/variants"
)

// Counts are those of a round, or of several.
type Counts struct {
	// Given is how often running pods were given another content, and Resized other amounts; Refused is how often their
	// nodes could not give them these.
	Given, Resized, Refused int
	// Pinned are the pods that were made with digests that were to be theirs, and Entered those that came to nodes which
	// had been closed. Fetched are the daemons that were taken away when their nodes had the images that they had to
	// fetch, and Pulled the pods that had nodes fetch these.
	Pinned, Entered, Fetched, Pulled int
}

// Of counts in a record; judges have counted the others.
func Of(r history.Record, judged Counts) Counts {
	judged.Given, judged.Resized, judged.Refused = copies.Given(r), variants.Resized(r), variants.Refused(r)
	return judged
}

// Add adds those of another round.
func (c *Counts) Add(o Counts) {
	c.Given, c.Resized, c.Refused = c.Given+o.Given, c.Resized+o.Resized, c.Refused+o.Refused
	c.Pinned, c.Entered = c.Pinned+o.Pinned, c.Entered+o.Entered
	c.Fetched, c.Pulled = c.Fetched+o.Fetched, c.Pulled+o.Pulled
}

// Tell tells of those that are more than none.
func (c *Counts) Tell(out io.Writer) {
	for _, l := range []struct {
		n    int
		what string
	}{
		{c.Given, "contents given to running pods"},
		{c.Pinned, "pods made with the digests of their template"},
		{c.Fetched, "daemons taken away when their nodes had fetched the images"},
		{c.Pulled, "pods that had a node fetch images"},
		{c.Resized, "times a running pod was given other amounts"},
		{c.Refused, "times its node could not give them"},
		{c.Entered, "pods that came to nodes which had been closed"},
	} {
		if l.n > 0 {
			fmt.Fprintf(out, "%4d %s\n", l.n, l.what)
		}
	}
}
