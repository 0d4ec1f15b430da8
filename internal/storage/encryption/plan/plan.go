// Package plan decides which step of a change of the keys of stored Secrets is next.
// It is pure. All that it goes by is in the file of keys, in the database and with
// the servers, so that a change which was interrupted after any step goes on where
// it was: the order of the keys in the file is the state of the change.
package plan

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Facts are what is known before a step.
type Facts struct {
	// Rotate wants another key in the place of the one that there is; without it only
	// what was begun is finished, and what is plain encrypted.
	Rotate bool
	// Keys are the names in the order of the file: the first writes, all read. The
	// empty name is that of what is not encrypted.
	Keys []string
	// Stored counts the objects by the name of their key.
	Stored map[string]int
	// Servers are all API servers that there are.
	Servers []Server
}

// Server is one API server.
type Server struct {
	Name string
	// Follows says that it uses the file as it is now.
	Follows bool
	// Settled says that nothing is under way there that began with an older file.
	Settled bool
	// Silent says that it has told nothing for a while.
	Silent bool
}

// Kind is what is to be done.
type Kind string

// Kinds of steps.
const (
	// Add puts a new key behind those that there are.
	Add Kind = "add"
	// Promote puts the last key first.
	Promote Kind = "promote"
	// Rewrite writes objects again that another key than the first one wrote.
	Rewrite Kind = "rewrite"
	// Drop leaves only the first key.
	Drop Kind = "drop"
	// Wait does nothing yet.
	Wait Kind = "wait"
	// Done says that nothing is left to do.
	Done Kind = "done"
)

// Step is one step, with its reason.
type Step struct {
	Kind Kind
	// Keys are the names in the file after it, if it changes the file.
	Keys   []string
	Reason string
}

// Next decides.
func Next(f Facts) (Step, error) {
	keys := f.Keys
	if len(keys) == 0 {
		keys = []string{""} // without a file nothing is encrypted
	}
	switch {
	case len(keys) > 2:
		return Step{}, fmt.Errorf("there are %d keys in the file, and a change has two at most; take those away by hand "+
			"that wrote nothing of what is stored", len(keys))
	case len(keys) == 2 && keys[0] == keys[1]:
		return Step{}, errors.New("both keys in the file have one name; give the newer one another by hand")
	}
	if err := readable(keys, f.Stored); err != nil {
		return Step{}, err
	}
	if len(keys) == 2 {
		return change(keys, f), nil
	}
	switch {
	case keys[0] == "":
		return Step{Kind: Add, Keys: []string{"", after(keys)}, Reason: "Secrets are not encrypted yet"}, nil
	case f.Rotate:
		return Step{Kind: Add, Keys: []string{keys[0], after(keys)}, Reason: keys[0] + " is to be replaced"}, nil
	}
	return Step{Kind: Done, Reason: "Secrets are encrypted with " + keys[0]}, nil
}

// readable makes sure that every key is there that something was written with.
func readable(keys []string, stored map[string]int) error {
	for name, n := range stored {
		known := n == 0
		for _, k := range keys {
			known = known || k == name
		}
		if !known {
			return fmt.Errorf("%d objects are stored with %s, which is not in the file; restore that key from a backup first",
				n, Display(name))
		}
	}
	return nil
}

// change goes on with a change that was begun.
func change(keys []string, f Facts) Step {
	if wait := waiting(f.Servers); wait != "" {
		return Step{Kind: Wait, Reason: wait}
	}
	if number(keys[1]) > number(keys[0]) {
		return Step{Kind: Promote, Keys: []string{keys[1], keys[0]},
			Reason: "every server can read what " + keys[1] + " writes"}
	}
	if left := f.Stored[keys[1]]; left > 0 {
		return Step{Kind: Rewrite, Reason: fmt.Sprintf("%d objects are stored with %s", left, Display(keys[1]))}
	}
	for _, s := range f.Servers {
		if !s.Settled {
			return Step{Kind: Wait,
				Reason: "writes that began before, on server " + s.Name + ", may be under way for some moments"}
		}
	}
	return Step{Kind: Drop, Keys: keys[:1], Reason: "nothing is stored with " + Display(keys[1]) + " any more"}
}

// waiting says which server holds a change up, and what to do about it.
func waiting(servers []Server) string {
	for _, s := range servers {
		switch {
		case s.Follows:
		case s.Silent:
			return "server " + s.Name + " is silent and uses other keys than the file says; start it with this file, or " +
				"delete its Lease in kube-system if it never comes back"
		default:
			return "server " + s.Name + " does not use the file as it is now; if it has another data folder, copy the file there"
		}
	}
	if len(servers) == 0 {
		return "no server has told yet which keys it uses"
	}
	return ""
}

// prefix begins the names of keys that are made here.
const prefix = "key-"

// number is how new a key is. What is not encrypted is older than every key.
func number(name string) int {
	text, ok := strings.CutPrefix(name, prefix)
	n, err := strconv.Atoi(text)
	if !ok || err != nil {
		return 0
	}
	return n
}

// after is the name of the next key.
func after(keys []string) string {
	newest := 0
	for _, k := range keys {
		newest = max(newest, number(k))
	}
	return prefix + strconv.Itoa(newest+1)
}

// First is the name of a new cluster's key.
func First() string { return after(nil) }

// Newer says whether one key was made after another.
func Newer(name, other string) bool { return number(name) > number(other) }

// Display names a key for people.
func Display(name string) string {
	if name == "" {
		return "no key (plain)"
	}
	return name
}
