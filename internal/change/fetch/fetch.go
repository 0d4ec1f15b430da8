// Package fetch says how a node is asked for the images of a revision before its daemon is taken away, and what it
// answers. The controller writes a Request into the daemon that is there; the node's agent pulls with the rights that
// it has by that pod, and answers once with a condition of the pod.
package fetch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/loop/deadline"
	"github.com/everynode/everynode/internal/untrusted/plaintext"
)

// Name is the annotation of a daemon whose node is to fetch images; a Request is its value. The API takes it from the
// DaemonSet controller alone. On a Node it is the label of an agent that follows it.
const Name = "everynode.io/fetch-images"

// Condition is the pod condition by which an agent answers. Its reason is a Reason, and its message begins with the
// Key of the Request.
const Condition corev1.PodConditionType = "everynode.io/ImagesFetched"

// Reason is what came of a request.
type Reason string

// The answers; "" is none yet.
const (
	// Fetched: the node has all images.
	Fetched Reason = "Fetched"
	// NoSecret: the registry did not give them, and the new pod has pull secrets that the present one does not name: the
	// node may not read these. Nothing follows from that. Whether its service account gives it some is asked first.
	NoSecret Reason = "NoSecret"
	// NoSpace and Unreachable are the node's own fault.
	NoSpace     Reason = "NoSpace"
	Unreachable Reason = "Unreachable"
	// NotFound, Unauthorized and PullFailed are the revision's.
	NotFound     Reason = "NotFound"
	Unauthorized Reason = "Unauthorized"
	PullFailed   Reason = "PullFailed"
)

// Done reports whether nobody is to wait for the node any more, and nothing is wrong.
func (r Reason) Done() bool { return r == Fetched || r == NoSecret }

// Own reports whether the node, and not the revision, is to blame.
func (r Reason) Own() bool { return r == NoSpace || r == Unreachable }

// Request asks a node for the images of a revision.
type Request struct {
	// Revision is the one that the node's next daemon is to have, At when it was asked for.
	Revision string    `json:"revision"`
	At       time.Time `json:"at"`
	Images   []Image   `json:"images"`
	// Lacks says with which credentials the next daemon may pull, and the present one may not; "" for none.
	Lacks string `json:"lacks,omitempty"`
	// OfAccount: the next daemon has no pull secrets but those that its service account names when it is made. An older
	// controller does not say so, and an older agent goes by Lacks alone.
	OfAccount bool `json:"ofAccount,omitempty"`
}

// Image is one to be there.
type Image struct {
	Image  string            `json:"image"`
	Policy corev1.PullPolicy `json:"policy,omitempty"`
}

// MaxImages is how many images one request names.
const MaxImages = 200

// Key tells a Request from those before and after it.
func (r *Request) Key() string { return r.Revision + " of " + r.At.UTC().Format(time.RFC3339Nano) }

// Text is the value of the annotation.
func (r *Request) Text() (string, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("write which images a node is to fetch: %w", err)
	}
	return string(raw), nil
}

// Of reads the annotation; nil if there is none.
func Of(annotations map[string]string) (*Request, error) {
	text, is := annotations[Name]
	if !is {
		return nil, nil
	}
	var r Request
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, fmt.Errorf("read annotation %s: %w", Name, err)
	}
	if r.Revision == "" || r.At.IsZero() || len(r.Images) > MaxImages {
		return nil, fmt.Errorf("read annotation %s: it is not as it was written", Name)
	}
	return &r, nil
}

// Can reports whether a node with these labels fetches images when it is asked: its agent says so.
func Can(labels map[string]string) bool { return labels[Name] == "true" }

// Images are the first MaxImages of All, and more is how many others there are: the pod pulls these.
func Images(spec *corev1.PodSpec) (out []Image, more int) {
	out = All(spec)
	if more = len(out) - MaxImages; more > 0 {
		return out[:MaxImages], more
	}
	return out, 0
}

// All are the images that a pod with the spec needs on its node: of volumes, init containers and containers, in the
// order in which they are needed and each once.
func All(spec *corev1.PodSpec) (out []Image) {
	seen := map[Image]bool{}
	add := func(image string, policy corev1.PullPolicy) {
		i := Image{image, policy}
		if image != "" && !seen[i] {
			out = append(out, i)
		}
		seen[i] = true
	}
	for i := range spec.Volumes {
		if v := spec.Volumes[i].Image; v != nil {
			add(v.Reference, v.PullPolicy)
		}
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			add(containers[i].Image, containers[i].ImagePullPolicy)
		}
	}
	return out
}

// Lacks says which credentials a pod with the next spec has, and one with the present spec has not; "" for none. The
// present one is as the API stored it, with the pull secrets that its service account had then: what the account has
// by now is to be asked for where ofAccount.
func Lacks(next, present *corev1.PodSpec) (lacks string, ofAccount bool) {
	ofAccount = len(next.ImagePullSecrets) == 0
	if is := Account(next); ofAccount && is != Account(present) {
		return "the pull secrets of service account " + is, ofAccount
	}
	return LacksOf(next.ImagePullSecrets, present), ofAccount
}

// LacksOf says which of the pull secrets a pod with the present spec does not name; "" for none.
func LacksOf(secrets []corev1.LocalObjectReference, present *corev1.PodSpec) string {
	for _, s := range secrets {
		if !slices.Contains(present.ImagePullSecrets, s) {
			return "pull secret " + s.Name
		}
	}
	return ""
}

// Account is the service account of a pod with the spec.
func Account(spec *corev1.PodSpec) string { return cmp.Or(spec.ServiceAccountName, "default") }

// Report is what a pod says of its request. It is comparable.
type Report struct {
	// Revision is the one that was asked for, At when; "" for none.
	Revision string    `json:",omitempty"`
	At       time.Time `json:",omitzero"`
	// Reason is the answer, Why what else is to be said.
	Reason Reason `json:",omitempty"`
	Why    string `json:",omitempty"`
	// Answered is since when it says that it has the images, or that it cannot have them: by the node's clock, and not
	// before At. Zero for no answer.
	Answered time.Time `json:",omitzero"`
	// Queued: it is not asked yet, since enough others are; nobody's deadline begins.
	Queued bool `json:",omitempty"`
}

// ReportOf reads what a pod says. What cannot be read is none of ours.
func ReportOf(p *corev1.Pod) Report {
	r, err := Of(p.Annotations)
	if err != nil || r == nil {
		return Report{}
	}
	out := Report{Revision: r.Revision, At: r.At.UTC()}
	if c := r.answer(p.Status.Conditions); c != nil {
		out.Reason = Reason(c.Reason)
		_, out.Why = said(c)
		out.Answered = deadline.Later(c.LastTransitionTime.UTC(), out.At)
	}
	return out
}

// Answered returns what a pod's conditions answer to the request; "" if nothing.
func (r *Request) Answered(conditions []corev1.PodCondition) (reason Reason, why string) {
	c := r.answer(conditions)
	if c == nil {
		return "", ""
	}
	_, why = said(c)
	return Reason(c.Reason), why
}

// answer is the condition that answers the request; nil if none does.
func (r *Request) answer(conditions []corev1.PodCondition) *corev1.PodCondition {
	for i := range conditions {
		c := &conditions[i]
		if key, _ := said(c); c.Type == Condition && key == r.Key() {
			return c
		}
	}
	return nil
}

// SameRequest reports whether two conditions answer the same request.
func SameRequest(a, b *corev1.PodCondition) bool {
	of, _ := said(a)
	other, _ := said(b)
	return of == other
}

// said takes apart what Answer put together: the key of the request, and what else is to be said.
func said(c *corev1.PodCondition) (key, why string) {
	key, why, _ = strings.Cut(c.Message, ": ")
	return key, why
}

// Answer is the condition for what came of a request.
func (r *Request) Answer(reason Reason, why string) corev1.PodCondition {
	c := corev1.PodCondition{Type: Condition, Status: corev1.ConditionFalse, Reason: string(reason), Message: r.Key()}
	switch reason {
	case Fetched:
		c.Status = corev1.ConditionTrue
	case NoSecret:
		c.Status = corev1.ConditionUnknown
	}
	if why != "" {
		c.Message += ": " + Short(why)
	}
	return c
}

// Short is as much as is kept of what a registry, a runtime or an API server says.
func Short(said string) string { return plaintext.Cut(said, 512, "…") }
