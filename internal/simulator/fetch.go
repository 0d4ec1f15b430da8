package simulator

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/change/fetch"
)

// fetchAgain is after how long images that could not be fetched are tried again.
const fetchAgain = 10 * time.Second

// fetching is what a pod's node was asked to fetch by the pod.
type fetching struct {
	text    string // of the annotation
	request *fetch.Request
	began   time.Time
	// tried is when it was tried last, and answer what came of it.
	tried  time.Time
	answer *corev1.PodCondition
}

// fetch fetches what the pod's node is asked for: each image takes as long as its pull would, and fails as that would.
// It returns when to come again.
func (p *pod) fetch(object *corev1.Pod, now time.Time) (again time.Time) {
	if object == nil {
		return again
	}
	f := &p.fetching
	if text := object.Annotations[fetch.Name]; text != f.text {
		*f = fetching{text: text, began: now}
		// What cannot be read is never answered.
		f.request, _ = fetch.Of(object.Annotations)
		if f.request != nil {
			if reason, why := f.request.Answered(object.Status.Conditions); reason != "" {
				f.say(reason, why)
			}
		}
	}
	if f.request == nil || f.answer != nil && f.answer.Status == corev1.ConditionTrue {
		return again
	}
	takes, failed := p.pulls(object, f.request.Images)
	at := f.began.Add(takes)
	if next := f.tried.Add(fetchAgain); !f.tried.IsZero() && next.After(at) {
		at = next
	}
	if at.After(now) {
		return at
	}
	f.tried = now
	if failed != "" {
		f.say(fetch.Classify(failed), failed)
		return now.Add(fetchAgain)
	}
	for _, i := range f.request.Images {
		p.keepImage(i.Image)
	}
	f.say(fetch.Fetched, "")
	return again
}

func (f *fetching) say(reason fetch.Reason, why string) {
	c := f.request.Answer(reason, why)
	f.answer = &c
}

// pulls says how long it takes to pull images for the pod, and why one cannot be; "" if all can.
func (p *pod) pulls(object *corev1.Pod, images []fetch.Image) (takes time.Duration, failed string) {
	for _, i := range images {
		if p.hasImage(i.Image) {
			continue
		}
		behaviour, ill := p.image(i.Image), p.ward.Container(object, &corev1.Container{Image: i.Image})
		takes += max(behaviour.StartDelay, ill.PullTakes)
		failed = cmp.Or(failed, behaviour.PullError, ill.PullError)
	}
	return takes, failed
}

// images are those that nodes have fetched; nodes.mu guards them.
type images map[string]bool

// keepsImage notes that a node has fetched an image.
func (n *nodes) keepsImage(of *node, image string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if of.images == nil {
		of.images = images{}
	}
	of.images[image] = true
}

func (n *nodes) hasImage(of *node, image string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return of.images[image]
}
