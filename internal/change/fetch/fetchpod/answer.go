package fetchpod

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/change/fetch"
)

// Answer is what a pod tells of its images.
type Answer struct {
	// Reason is "" while nothing is known; Why says what else there is to say.
	Reason fetch.Reason
	Why    string
	// Over: it tells nothing more. Hindered: it does not come so far as to pull, by no fault of the node or the revision.
	Over, Hindered bool
}

// Read finds out what a pod tells. Before is what it told before: a kubelet that waits between two tries may say no
// more than that.
func Read(p *corev1.Pod, before Answer) Answer {
	at := statuses(p.Status.ContainerStatuses)
	var worst Answer
	missing := 0
	for i := range p.Spec.Containers {
		s := at[p.Spec.Containers[i].Name]
		if isThere(s) {
			continue
		}
		missing++
		worst = worse(worst, failure(s, before))
	}
	switch {
	case missing == 0:
		return Answer{Reason: fetch.Fetched, Over: true}
	case p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded:
		if worst.Reason == "" {
			worst.Reason, worst.Why = before.Reason, before.Why
		}
		why := "the pod that fetches them failed" + after(cmp.Or(p.Status.Message, p.Status.Reason, stopped(p)))
		return Answer{Reason: worst.Reason, Why: fetch.Short(cmp.Or(worst.Why, why)), Over: true, Hindered: stopped(p) != ""}
	case worst.Reason == "":
		if why := begins(p); why != "" {
			return Answer{Why: fetch.Short(why), Hindered: true}
		}
	}
	return worst
}

// stopped says how our own container ended that did not do its work; "" if it did not end so.
func stopped(p *corev1.Pod) string {
	for i := range p.Status.InitContainerStatuses {
		if t := p.Status.InitContainerStatuses[i].State.Terminated; t != nil && t.ExitCode != 0 {
			return cmp.Or(strings.TrimSpace(t.Message), t.Reason, fmt.Sprint("exit code ", t.ExitCode))
		}
	}
	return ""
}

// begins says why our own container does not begin; "" if nothing is wrong with it.
func begins(p *corev1.Pod) string {
	for i := range p.Status.InitContainerStatuses {
		w := p.Status.InitContainerStatuses[i].State.Waiting
		if w != nil && (refusals[w.Reason] || withImage[w.Reason]) {
			return "the image of Everynode does not start there: " + cmp.Or(w.Message, w.Reason)
		}
	}
	return ""
}

func statuses(all []corev1.ContainerStatus) map[string]*corev1.ContainerStatus {
	out := map[string]*corev1.ContainerStatus{}
	for i := range all {
		out[all[i].Name] = &all[i]
	}
	return out
}

// refusals are the reasons for which a container waits whose image is not there.
var refusals = map[string]bool{
	"ErrImagePull": true, "ImagePullBackOff": true, "ErrImageNeverPull": true, "InvalidImageName": true,
	"ImageInspectError": true, "RegistryUnavailable": true, "SignatureValidationFailed": true,
}

// withImage are the reasons for which one waits whose image is there: it is looked at before.
var withImage = map[string]bool{
	"CreateContainerConfigError": true, "CreateContainerError": true, "RunContainerError": true,
	"PreStartHookError": true, "PostStartHookError": true, "CrashLoopBackOff": true,
}

// isThere reports whether the image of a container is on the node. That one ended alone does not say so: a kubelet
// gives an end to containers that never began.
func isThere(s *corev1.ContainerStatus) bool {
	if s == nil {
		return false
	}
	w, t := s.State.Waiting, s.State.Terminated
	return s.ImageID != "" || s.State.Running != nil || t != nil && t.ExitCode == 0 || w != nil && withImage[w.Reason]
}

// failure is why the image of a container is not there.
func failure(s *corev1.ContainerStatus, before Answer) Answer {
	if s == nil || s.State.Waiting == nil || !refusals[s.State.Waiting.Reason] {
		return Answer{}
	}
	reason, said := s.State.Waiting.Reason, s.State.Waiting.Message
	is := fetch.Classify(said)
	switch {
	case is != fetch.PullFailed:
	case reason == "ImagePullBackOff": // it says why in some versions only
		return before
	case reason == "RegistryUnavailable":
		is = fetch.Unreachable
	case reason == "InvalidImageName", reason == "ErrImageNeverPull":
		is = fetch.NotFound
	}
	return Answer{Reason: is, Why: fetch.Short(cmp.Or(said, reason))}
}

// worse is what counts of two failures: what nobody can have comes first, since no patience of the node ends that.
func worse(a, b Answer) Answer {
	if a.Reason == "" || b.Reason != "" && a.Reason.Own() && !b.Reason.Own() {
		return b
	}
	return a
}

func after(said string) string {
	if said == "" {
		return ""
	}
	return ": " + said
}

// NoteName is the annotation of a daemon's pod that says what came of the images of its successor.
const NoteName = "everynode.io/fetched-images"

// Note is the patch by which the daemon's pod of that UID says what came of fetching; nil takes that off.
func Note(daemon string, r *fetch.Report) ([]byte, error) {
	var value any
	if r != nil {
		text, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("write what came of fetching images: %w", err)
		}
		value = string(text)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": daemon, "annotations": map[string]any{NoteName: value},
	}})
	if err != nil {
		return nil, fmt.Errorf("write what came of fetching images: %w", err)
	}
	return patch, nil
}

// Noted is what a daemon's pod says of that. What cannot be read is none of ours.
func Noted(daemon *corev1.Pod) fetch.Report {
	var r fetch.Report
	text := daemon.Annotations[NoteName]
	if text == "" || json.Unmarshal([]byte(text), &r) != nil || r.Revision == "" {
		return fetch.Report{}
	}
	r.Why, r.Queued = fetch.Short(r.Why), false
	r.At, r.Answered = r.At.UTC(), r.Answered.UTC()
	return r
}
