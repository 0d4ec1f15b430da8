// Package fetcher has a node pull the images that the controller asks it for, before its daemon is taken away.
//
// What is asked for stands in the daemon that is there: the node pulls with that pod's rights, and has no others. It
// answers once, in a condition of the pod. A pull that failed is tried again for as long as it is asked for, and its
// answer changes then. Nothing is kept on disk: an agent that starts again reads the answer from the pod.
package fetcher

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/images"
	"github.com/everynode/everynode/internal/change/fetch"
)

const (
	// retryFirst and retryLast are the pauses between tries, as those of pods.
	retryFirst = 10 * time.Second
	retryLast  = 5 * time.Minute
	// linger is how long images stay after the pod that they were asked by has gone: the next one is about to come.
	linger = 10 * time.Minute
	// patience is how long the API server is waited for.
	patience = 10 * time.Second
)

// Config is what a Fetcher needs.
type Config struct {
	// Pull makes an image present for the pod.
	Pull func(ctx context.Context, pod *corev1.Pod, image string, policy corev1.PullPolicy) error
	// PullSecrets are those that a service account of the node's pods names now, with which its next pod is made.
	PullSecrets func(ctx context.Context, namespace, account string) ([]corev1.LocalObjectReference, error)
	// Full says why the node has no room for images; "" while it has. Nil for always.
	Full func() string
	// Answered is told of a pod that has another answer.
	Answered func(types.UID)
	Clock    clock.WithTicker
}

// Fetcher fetches for the pods of a node. It is safe for concurrent use.
type Fetcher struct {
	cfg Config
	ctx context.Context //nolint:containedctx // the pulls' lifetime, given to New; who asks for them does not wait
	wg  sync.WaitGroup

	mu    sync.Mutex
	jobs  map[types.UID]*job
	ended bool
}

// job is what one pod asks for.
type job struct {
	pod     *corev1.Pod
	request *fetch.Request
	text    string
	cancel  context.CancelFunc
	// there are the images that are; guarded, as the answer is, by Fetcher.mu.
	there  map[fetch.Image]bool
	reason fetch.Reason
	why    string
	// until is when its images need not stay any more; zero while the pod is there.
	until time.Time
}

// New returns a Fetcher that pulls until ctx ends.
func New(ctx context.Context, cfg Config) *Fetcher {
	if cfg.Full == nil {
		cfg.Full = func() string { return "" }
	}
	return &Fetcher{cfg: cfg, ctx: ctx, jobs: map[types.UID]*job{}}
}

// Wait returns when ctx has ended, and no pull is under way.
func (f *Fetcher) Wait(ctx context.Context) {
	<-ctx.Done()
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	f.wg.Wait()
}

// PodChanged takes in what a pod asks for.
func (f *Fetcher) PodChanged(pod *corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old, text := f.jobs[pod.UID], pod.Annotations[fetch.Name]
	switch {
	case old == nil && text == "", f.ended:
		return
	case old != nil && old.text == text:
		old.pod = pod
		return
	}
	if old != nil {
		old.cancel()
		delete(f.jobs, pod.UID)
	}
	request, err := fetch.Of(pod.Annotations)
	if err != nil {
		klog.FromContext(f.ctx).Error(err, "Cannot fetch images", "pod", klog.KObj(pod))
	}
	if request == nil {
		return
	}
	j := &job{pod: pod, request: request, text: text, there: map[fetch.Image]bool{}}
	if old != nil {
		for _, i := range request.Images { // others do not stay any more
			j.there[i] = old.there[i]
		}
	}
	j.reason, j.why = request.Answered(pod.Status.Conditions)
	var ctx context.Context
	ctx, j.cancel = context.WithCancel(f.ctx)
	f.jobs[pod.UID] = j
	if !j.reason.Done() {
		f.wg.Go(func() { f.run(ctx, j) })
	}
}

// PodGone lets a pull that is under way end, since the pod's successor waits for it, and begins no other.
func (f *Fetcher) PodGone(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.cfg.Clock.Now()
	if j := f.jobs[uid]; j != nil && j.until.IsZero() {
		j.until = now.Add(linger)
	}
	for uid, j := range f.jobs {
		if !j.until.IsZero() && !j.until.After(now) {
			j.cancel()
			delete(f.jobs, uid)
		}
	}
}

// Answer is the condition that the pod is to have; nil for none.
func (f *Fetcher) Answer(uid types.UID) *corev1.PodCondition {
	f.mu.Lock()
	defer f.mu.Unlock()
	j := f.jobs[uid]
	if j == nil || j.reason == "" {
		return nil
	}
	c := j.request.Answer(j.reason, j.why)
	return &c
}

// Used are the images that must stay, by their names.
type Used = func(ctx context.Context) (map[string]bool, error)

// Beside adds the images that were asked for to those that others need.
func (f *Fetcher) Beside(used Used) Used {
	return func(ctx context.Context) (map[string]bool, error) {
		all, err := used(ctx)
		if err != nil {
			return nil, err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		now := f.cfg.Clock.Now()
		for _, j := range f.jobs {
			for _, i := range j.request.Images {
				if name, err := images.PinName(i.Image); err == nil && (j.until.IsZero() || j.until.After(now)) {
					all[name] = true
				}
			}
		}
		return all, nil
	}
}

// run tries until all images are there.
func (f *Fetcher) run(ctx context.Context, j *job) {
	for pause := retryFirst; ; pause = min(2*pause, retryLast) {
		reason, why := f.try(ctx, j)
		if ctx.Err() != nil || f.settle(j, reason, why) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-f.cfg.Clock.After(pause):
		}
	}
}

// try pulls what is not there. The worst of what went wrong is the answer.
func (f *Fetcher) try(ctx context.Context, j *job) (fetch.Reason, string) {
	var failed []failure
	for _, i := range j.request.Images {
		f.mu.Lock()
		there, pod := j.there[i], j.pod
		f.mu.Unlock()
		if there {
			continue
		}
		if full := f.cfg.Full(); full != "" && i.Policy != corev1.PullNever {
			failed = append(failed, failure{fetch.NoSpace, full})
			continue
		}
		err := f.cfg.Pull(ctx, pod, i.Image, i.Policy)
		if ctx.Err() != nil {
			return "", ""
		}
		if err != nil {
			failed = append(failed, failure{fetch.Classify(err.Error()), err.Error()})
			continue
		}
		f.mu.Lock()
		j.there[i] = true
		f.mu.Unlock()
	}
	return f.verdict(ctx, j, failed)
}

// failure is why an image cannot be had.
type failure struct {
	reason fetch.Reason
	why    string
}

// verdict is the answer to a request of which that failed.
func (f *Fetcher) verdict(ctx context.Context, j *job, failed []failure) (fetch.Reason, string) {
	if len(failed) == 0 {
		return fetch.Fetched, ""
	}
	// What nobody can have comes first: that ends by no patience of the node.
	rank := func(of failure) int {
		if of.reason.Own() {
			return 1
		}
		return 0
	}
	worst := slices.MinFunc(failed, func(a, b failure) int { return cmp.Compare(rank(a), rank(b)) })
	if worst.reason != fetch.Unauthorized && worst.reason != fetch.NotFound {
		return worst.reason, worst.why
	}
	lacks, err := f.lacks(ctx, j)
	switch {
	case err != nil:
		// The revision may be right, and the daemon stays while that is not known.
		return fetch.Unreachable, err.Error() + "; the registry says: " + worst.why
	case lacks != "":
		return fetch.NoSecret, "this node may not read " + lacks + " before the next pod is there"
	}
	return worst.reason, worst.why
}

// lacks says with which credentials the next pod may pull, and the present one may not; "" for none.
func (f *Fetcher) lacks(ctx context.Context, j *job) (string, error) {
	if j.request.Lacks != "" || !j.request.OfAccount {
		return j.request.Lacks, nil
	}
	f.mu.Lock()
	pod := j.pod
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	account := fetch.Account(&pod.Spec)
	secrets, err := f.cfg.PullSecrets(ctx, pod.Namespace, account)
	if err != nil {
		return "", err
	}
	if lacks := fetch.LacksOf(secrets, &pod.Spec); lacks != "" {
		return lacks + " of service account " + account, nil
	}
	return "", nil
}

// settle takes the answer in, and reports whether the job is over.
func (f *Fetcher) settle(j *job, reason fetch.Reason, why string) (over bool) {
	f.mu.Lock()
	news := j.reason != reason || j.why != why
	j.reason, j.why = reason, why
	pod, gone := j.pod, !j.until.IsZero()
	f.mu.Unlock()
	if news && !gone {
		klog.FromContext(f.ctx).Info("Answered a request for images", "pod", klog.KObj(pod), "revision",
			j.request.Revision, "answer", reason, "why", why)
		f.cfg.Answered(pod.UID)
	}
	return gone || reason.Done()
}
