// Package revision reads the names of revisions with content, and what such contents hold; pure. It knows none of the
// product's code: what it reads is told in docs/content.md.
package revision

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// The labels of pods and of what stands for content, with their values.
const (
	Label        = "everynode.io/revision"
	ContentLabel = "everynode.io/content"
	Copy         = "copy"
	Manifest     = "manifest"
)

// Ref names an object, or a copy of one.
type Ref struct{ Kind, Name string }

func (r Ref) String() string { return r.Kind + " " + r.Name }

// The kinds of a Ref.
const (
	MapKind    = "ConfigMap"
	SecretKind = "Secret"
)

// The objects that templates of rounds name, and no others.
var (
	Map    = Ref{MapKind, "conf"}
	Secret = Ref{SecretKind, "pass"}
)

// RefOf is the name of a ConfigMap or a Secret; the zero Ref of anything else.
func RefOf(o metav1.Object) Ref {
	switch o := o.(type) {
	case *corev1.ConfigMap:
		return Ref{MapKind, o.Name}
	case *corev1.Secret:
		return Ref{SecretKind, o.Name}
	}
	return Ref{}
}

// Split parts a revision into the template's hash and the content's ID, which may be "". Variants are in neither.
func Split(revision string) (template, id string) {
	template, id, _ = strings.Cut(revision, ".")
	template, _, _ = strings.Cut(template, "_")
	return template, id
}

// VariantsOf is the ID of the variants of a revision; "" for none.
func VariantsOf(revision string) string {
	template, _, _ := strings.Cut(revision, ".")
	_, id, _ := strings.Cut(template, "_")
	return id
}

// Varied reports whether a pod was made by variants.
func Varied(p *corev1.Pod) bool { return VariantsOf(p.Labels[Label]) != "" }

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
	template := p.Labels[appsv1.ControllerRevisionHashLabelKey]
	if id := VariantsOf(p.Labels[Label]); id != "" {
		template += "_" + id
	}
	return Join(template, ContentOf(p))
}

// List is what a manifest says: the copies of a content.
type List struct {
	ID      string   `json:"id"`
	Members []Member `json:"members"`
}

// Member is an object of a content. There is a copy of that name, unless the object was absent.
type Member struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Copy   string `json:"copy"`
	Absent bool   `json:"absent"`
}

// Ref is the object's own name.
func (m *Member) Ref() Ref { return Ref{m.Kind, m.Name} }

// Refers is the copy to which pods of the content refer: an empty one where the object was absent.
func (m *Member) Refers() Ref {
	if !m.Absent {
		return Ref{m.Kind, m.Copy}
	}
	sum := sha256.Sum256([]byte("empty copy for " + m.Copy))
	return Ref{m.Kind, m.Name + "-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:24])}
}

// Read reads a manifest; false if the object is none.
func Read(o metav1.Object) (l List, ok bool) {
	m, is := o.(*corev1.ConfigMap)
	if !is || m.Labels[ContentLabel] != Manifest {
		return l, false
	}
	err := json.Unmarshal([]byte(m.Data["content.json"]), &l)
	return l, err == nil && l.ID != ""
}

// For is the member by whose name pods of the content refer to something. Volumes name what is missing so that nobody
// can make it.
func (l *List) For(name Ref) (m Member, is bool) {
	i := slices.IndexFunc(l.Members, func(m Member) bool {
		return m.Refers() == name || m.Absent && name == Ref{m.Kind, "_" + m.Copy}
	})
	if i < 0 {
		return m, false
	}
	return l.Members[i], true
}

// Has reports whether an object is a part of the content.
func (l *List) Has(object Ref) bool {
	return slices.ContainsFunc(l.Members, func(m Member) bool { return m.Ref() == object })
}

// Gone is what stands for the value of an object that is not there.
const Gone = "gone"

// Value is what a ConfigMap or a Secret holds, as a text to compare. That of a Secret is not in it.
func Value(o metav1.Object) string {
	switch o := o.(type) {
	case *corev1.ConfigMap:
		return text(o.Data, o.BinaryData)
	case *corev1.Secret:
		return fmt.Sprintf("%.8x", sha256.Sum256([]byte(text(o.Data))))
	}
	return ""
}

func text(maps ...any) string {
	text, err := json.Marshal(maps)
	if err != nil {
		panic("revision: plain maps do not marshal: " + err.Error())
	}
	return string(text)
}

// Held is what objects hold, each by its Value.
type Held map[Ref]string

// Of is what some of them hold.
func (h Held) Of(refs []Ref) Held {
	out := Held{}
	for _, r := range refs {
		out[r] = h[r]
	}
	return out
}

// IsOf reports whether it is of just these objects.
func (h Held) IsOf(refs []Ref) bool {
	return len(refs) == len(h) && !slices.ContainsFunc(refs, func(r Ref) bool { return h[r] == "" })
}

// Alike reports whether both are of the same objects, and of one at least.
func (h Held) Alike(o Held) bool { return len(o) > 0 && h.IsOf(slices.Collect(maps.Keys(o))) }

func (h Held) String() string {
	var out []string
	for ref, value := range h {
		out = append(out, ref.String()+"="+value)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// Equal reports whether both are of the same objects, and these hold the same.
func (h Held) Equal(o Held) bool { return maps.Equal(h, o) }

// Values is what each content holds, by its ID, if there were all copies of it.
func Values(all []metav1.Object) map[string]Held {
	copied, out := Held{}, map[string]Held{}
	for _, o := range all {
		if o.GetLabels()[ContentLabel] == Copy {
			copied[RefOf(o)] = Value(o)
		}
	}
	for _, o := range all {
		l, ok := Read(o)
		held := Held{}
		for _, m := range l.Members {
			value, known := copied[m.Refers()]
			if m.Absent {
				value, known = Gone, true
			}
			held[m.Ref()], ok = value, ok && known
		}
		if ok {
			out[l.ID] = held
		}
	}
	return out
}

// Empty reports whether a ConfigMap or a Secret holds nothing.
func Empty(o metav1.Object) bool {
	switch o := o.(type) {
	case *corev1.ConfigMap:
		return len(o.Data)+len(o.BinaryData) == 0
	case *corev1.Secret:
		return len(o.Data) == 0
	}
	return false
}

// ByAuthor reports whether it is one of the objects that people write.
func ByAuthor(o metav1.Object) bool {
	ref := RefOf(o)
	return (ref == Map || ref == Secret) && o.GetLabels()[ContentLabel] == ""
}

// Written is what people have written, of all ConfigMaps and Secrets.
func Written(all []metav1.Object) Held {
	out := Held{Map: Gone, Secret: Gone}
	for _, o := range all {
		if ByAuthor(o) {
			out[RefOf(o)] = Value(o)
		}
	}
	return out
}

// Takes is what a policy makes a part of revisions, of what a template names.
func Takes(c *v1alpha1.Content, named []Ref) []Ref {
	var out []Ref
	for _, r := range named {
		if r.Kind == MapKind && c.ConfigMaps != v1alpha1.ContentNone ||
			r.Kind == SecretKind && c.Secrets == v1alpha1.ContentReferenced {
			out = append(out, r)
		}
	}
	return out
}

// TemplateMark is the annotation by which templates are told apart.
const TemplateMark = "everynode.io/template"

// MarkOf is that of the template of a ControllerRevision.
func MarkOf(r *appsv1.ControllerRevision) string {
	var data struct {
		Spec struct{ Template corev1.PodTemplateSpec }
	}
	if err := json.Unmarshal(r.Data.Raw, &data); err != nil {
		return "unreadable: " + err.Error()
	}
	return data.Spec.Template.Annotations[TemplateMark]
}

// WithContent reports whether a policy makes content a part of revisions.
func WithContent(p *v1alpha1.RolloutPolicy) bool {
	return p != nil && p.Spec.Content != nil &&
		(p.Spec.Content.ConfigMaps != v1alpha1.ContentNone || p.Spec.Content.Secrets == v1alpha1.ContentReferenced)
}

// TakenBy reports whether one of some policies makes just the objects of a content a part of revisions.
func TakenBy(policies []*v1alpha1.RolloutPolicy, named []Ref, held Held) bool {
	return slices.ContainsFunc(policies, func(p *v1alpha1.RolloutPolicy) bool {
		return WithContent(p) && held.IsOf(Takes(p.Spec.Content, named))
	})
}
