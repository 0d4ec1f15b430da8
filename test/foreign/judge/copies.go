package judge

import (
	"fmt"
	"slices"
	"strings"
)

// copies wants none to go while a pod reads it, and no pod to be made for one that is not there.
func copies(all []Entry) (out []Fault) {
	b, made := newBook(), map[string]bool{}
	for _, e := range all {
		if e.Copy != "" && !e.Gone {
			made[e.Copy] = true
		}
		if e.Copy != "" && e.Gone {
			for _, p := range b.pods {
				if !p.Going && slices.Contains(p.Reads, e.Copy) {
					out = append(out, Fault{e.At, "copy", e.Copy +
						" goes, and the pod of " + p.Set + " on " + p.Node + " reads it"})
				}
			}
		}
		if p := e.Pod; p != nil && !e.Gone && b.pods[p.UID] == nil {
			for _, name := range p.Reads {
				if made[name] && !b.copies[name] {
					out = append(out, Fault{e.At, "copy", "the pod of " + p.Set + " on " +
						p.Node + " reads " + name + ", which is gone"})
				}
			}
		}
		b.note(e)
	}
	return out
}

// contents wants a pod that says which content it has to read the copies of that, and no others.
func contents(all []Entry) (out []Fault) {
	b, reads := newBook(), map[string]string{}
	for _, e := range all {
		p := e.Pod
		if p == nil || e.Gone || b.pods[p.UID] != nil || !strings.Contains(p.Revision, ".") || !b.answering(e.At) {
			b.note(e)
			continue
		}
		for _, name := range p.Reads {
			if !b.copies[name] {
				out = append(out, Fault{e.At, "content", fmt.Sprintf("the pod of %s on %s is of %s, and reads %s, which is "+
					"no copy", p.Set, p.Node, p.Revision, name)})
			}
		}
		_, id, _ := strings.Cut(p.Revision, ".")
		if key, is := p.Set+" "+id, strings.Join(p.Reads, " "); reads[key] == "" {
			reads[key] = is
		} else if reads[key] != is {
			out = append(out, Fault{e.At, "content", fmt.Sprintf("the pod of %s on %s is of %s, and reads %s, where another "+
				"one reads %s", p.Set, p.Node, p.Revision, is, reads[key])})
		}
		b.note(e)
	}
	return out
}

// Leftover are the copies that no pod reads.
func Leftover(all []Entry) (out []string) {
	b, read := newBook(), map[string]bool{}
	for _, e := range all {
		b.note(e)
	}
	for _, p := range b.pods {
		for _, name := range p.Reads {
			read[name] = true
		}
	}
	for name := range b.copies {
		if !read[name] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
