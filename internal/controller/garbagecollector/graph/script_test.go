package graph

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func testScope(apiVersion, kind string) Scope {
	switch {
	case apiVersion != "v1":
		return ScopeUnknown
	case kind == "Node":
		return ScopeCluster
	default:
		return ScopeNamespaced
	}
}

// TestScripts runs testdata/*. Objects are written kind/namespace/name (or
// kind//name) and have their name as UID. Verbs:
//
//	observe OBJECT [deleting] [orphan] [foreground] [owners=(OWNER,...)]
//	    OWNER is kind/name, then "!" if it blocks its owner's deletion, then
//	    "=uid" if the UID is not the name
//	remove OBJECT
//	absent OBJECT [uid=U]
//	end KIND [held=(UID,...)]
//	    the kind is served no more; held are still in the informer's store
//	serve KIND
//	    it is served again, and nothing of it observed yet
//	decide UID...
//	dump
//
// Each verb that changes the graph prints what became ready.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		ended := map[string]bool{}
		g := New(func(apiVersion, kind string) Scope {
			if ended[kind] {
				return ScopeUnknown
			}
			return testScope(apiVersion, kind)
		})
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "observe":
				o := Object{Identity: parseIdentity(d.CmdArgs[0].Key)}
				o.Deleting, o.Orphan, o.Foreground = d.HasArg("deleting"), d.HasArg("orphan"), d.HasArg("foreground")
				for _, arg := range d.CmdArgs[1:] {
					if arg.Key == "owners" {
						for _, v := range arg.Vals {
							o.Owners = append(o.Owners, parseOwner(v))
						}
					}
				}
				g.Observe(o)
			case "remove":
				g.Remove(parseIdentity(d.CmdArgs[0].Key))
			case "absent":
				id := parseIdentity(d.CmdArgs[0].Key)
				if d.HasArg("uid") {
					var uid string
					d.ScanArgs(t, "uid", &uid)
					id.UID = types.UID(uid)
				}
				g.ConfirmAbsent(id)
			case "end", "serve":
				kind := d.CmdArgs[0].Key
				ended[kind] = d.Cmd == "end"
				if d.Cmd == "end" {
					held := []string{}
					if d.HasArg("held") {
						held = d.CmdArgs[1].Vals
					}
					g.EndKind("v1", kind, func(uid types.UID) bool { return slices.Contains(held, string(uid)) })
				}
				g.Recheck(func(_, k string) bool { return k == kind })
			case "decide":
				var b strings.Builder
				for _, arg := range d.CmdArgs {
					b.WriteString(arg.Key + ": " + describe(g.Decide(types.UID(arg.Key))) + "\n")
				}
				return b.String()
			case "dump":
				return g.Dump()
			default:
				d.Fatalf(t, "unknown verb %q", d.Cmd)
			}
			return describeReady(g.Ready())
		})
	})
}

func parseIdentity(s string) Identity {
	parts := strings.Split(s, "/")
	return Identity{APIVersion: "v1", Kind: parts[0], Namespace: parts[1], Name: parts[2], UID: types.UID(parts[2])}
}

func parseOwner(s string) metav1.OwnerReference {
	s, uid, _ := strings.Cut(s, "=")
	name, block := strings.CutSuffix(s, "!")
	kind, name, _ := strings.Cut(name, "/")
	ref := metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: name, UID: types.UID(name)}
	if kind == "Unserved" {
		ref.APIVersion = "example.com/v1"
	}
	if uid != "" {
		ref.UID = types.UID(uid)
	}
	if block {
		ref.BlockOwnerDeletion = &block
	}
	return ref
}

func describe(d Decision) string {
	s := d.Action.String()
	if d.Policy != "" {
		s += " " + string(d.Policy)
	}
	if d.Unblock {
		s += " unblocked"
	}
	for _, id := range d.Verify {
		s += fmt.Sprintf(" %s/%s/%s=%s", id.Kind, id.Namespace, id.Name, id.UID)
	}
	for _, uid := range d.Owners {
		s += " " + string(uid)
	}
	return s + " (" + d.Reason + ")"
}

func describeReady(r Ready) string {
	var lines []string
	for _, uid := range r.Delete {
		lines = append(lines, "delete? "+string(uid))
	}
	for _, uid := range r.Orphan {
		lines = append(lines, "orphan? "+string(uid))
	}
	for _, i := range r.Invalid {
		lines = append(lines, fmt.Sprintf("invalid %s -> %s", i.Dependent.UID, i.Reference.UID))
	}
	if len(lines) == 0 {
		return "nothing"
	}
	return strings.Join(lines, "\n")
}
