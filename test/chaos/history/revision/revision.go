// Package revision reads the names of revisions with content, and what such contents hold; pure. It knows none of the
// product's code: what it reads is told in docs/content.md.
package revision

import (
	"encoding/json"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// The labels of pods and of what stands for content, with their values.
const (
	Label        = "everynode.io/revision"
	ContentLabel = "everynode.io/content"
	Copy         = "copy"
	Manifest     = "manifest"
)

// Object is the ConfigMap that templates of rounds name, and no other.
const Object = "conf"

// Split parts a revision into the template's hash and the content's ID, which may be "".
func Split(revision string) (template, id string) {
	template, id, _ = strings.Cut(revision, ".")
	return template, id
}

// Join is the other way round.
func Join(template, id string) string {
	if id == "" {
		return template
	}
	return template + "." + id
}

// ContentOf is the ID of the content that a pod says it has.
func ContentOf(p *corev1.Pod) string {
	_, id := Split(p.Labels[Label])
	return id
}

// Of is the whole revision of a pod.
func Of(p *corev1.Pod) string {
	return Join(p.Labels[appsv1.ControllerRevisionHashLabelKey], ContentOf(p))
}

// List is what a manifest says: the copies of a content.
type List struct {
	ID      string `json:"id"`
	Members []struct {
		Name   string `json:"name"`
		Copy   string `json:"copy"`
		Absent bool   `json:"absent"`
	} `json:"members"`
}

// Read reads a manifest; false if the object is none.
func Read(m *corev1.ConfigMap) (l List, ok bool) {
	if m.Labels[ContentLabel] != Manifest {
		return l, false
	}
	err := json.Unmarshal([]byte(m.Data["content.json"]), &l)
	return l, err == nil && l.ID != ""
}

// CopyOf is the name by which pods of the content refer to an object; "" if it is no part of it. There is a copy of
// that name, unless the object was absent.
func (l *List) CopyOf(name string) (as string, absent bool) {
	for _, m := range l.Members {
		if m.Name == name {
			return m.Copy, m.Absent
		}
	}
	return "", false
}

// Gone is what stands for the value of an object that is not there.
const Gone = "gone"

// Value is what an object holds, as a text to compare.
func Value(m *corev1.ConfigMap) string {
	text, err := json.Marshal([]any{m.Data, m.BinaryData})
	if err != nil {
		panic("revision: plain maps do not marshal: " + err.Error())
	}
	return string(text)
}

// Values is what each content holds of Object, by its ID, as far as there were copies of it.
func Values(all []*corev1.ConfigMap) map[string]string {
	held, out := map[string]string{}, map[string]string{}
	for _, m := range all {
		if m.Labels[ContentLabel] == Copy {
			held[m.Name] = Value(m)
		}
	}
	for _, m := range all {
		l, ok := Read(m)
		as, absent := l.CopyOf(Object)
		value, known := held[as]
		if absent {
			value, known = Gone, true
		}
		if ok && known {
			out[l.ID] = value
		}
	}
	return out
}

// ByAuthor reports whether it is Object itself, which people write.
func ByAuthor(m *corev1.ConfigMap) bool { return m.Name == Object && m.Labels[ContentLabel] == "" }

// Written is what Object holds, of all ConfigMaps.
func Written(all []*corev1.ConfigMap) (value string) {
	for _, m := range all {
		if ByAuthor(m) {
			return Value(m)
		}
	}
	return Gone
}
