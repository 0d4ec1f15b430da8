package agent

import (
	"context"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/referred"
	"github.com/everynode/everynode/internal/agent/remember"
	"github.com/everynode/everynode/internal/agent/volumes"
	podfacts "github.com/everynode/everynode/internal/pod"
)

// podsFile, in the data folder, has what the node needs to start its pods as they were.
const podsFile = "pods.jsonl"

// book is what the node remembers of its pods. It is safe for concurrent use.
type book struct {
	// note says that there is something new; nil for nobody.
	note func()

	mu   sync.Mutex
	pods map[types.UID]remember.Pod
}

func newBook(known []remember.Pod) *book {
	b := &book{pods: map[types.UID]remember.Pod{}}
	for _, pod := range known {
		b.pods[pod.Pod.UID] = pod
	}
	return b
}

// list are the pods as they are remembered now.
func (b *book) list() []remember.Pod {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]remember.Pod, 0, len(b.pods))
	for _, pod := range b.pods {
		out = append(out, pod)
	}
	return out
}

// seen is told of every pod that the API shows.
func (b *book) seen(pod *corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.pods[pod.UID]
	b.pods[pod.UID] = remember.Pod{Pod: pod, Ended: before.Ended}
	if before.Pod == nil || matters(before.Pod, pod) {
		b.tell()
	}
}

// matters says whether the change makes a difference to the next start. Statuses change all the time, and most of what they say is seen in
// the runtime.
func matters(before, after *corev1.Pod) bool {
	return before.Status.Phase != after.Status.Phase ||
		!before.DeletionTimestamp.Equal(after.DeletionTimestamp) ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) || !equality.Semantic.DeepEqual(before.Annotations, after.Annotations) ||
		!equality.Semantic.DeepEqual(before.Spec, after.Spec)
}

// ended is told how a pod ended.
func (b *book) ended(uid types.UID, status *corev1.PodStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	pod, ok := b.pods[uid]
	if !ok || podfacts.IsTerminal(pod.Pod) || pod.Ended != nil {
		return
	}
	pod.Ended = status.DeepCopy()
	b.pods[uid] = pod
	b.tell()
}

// forget is told of every pod that is no more.
func (b *book) forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.pods[uid]; ok {
		delete(b.pods, uid)
		b.tell()
	}
}

func (b *book) tell() {
	if b.note != nil {
		b.note()
	}
}

// recall reads what an earlier run knew of the node's pods and of services, and prepares what keeps it for the next one. The error is for a key that cannot be
// used; a file that cannot be read is told in the log, and the node then needs the API server to start pods.
func (a *Agent) recall(ctx context.Context, n *node) (*remember.Pods, *remember.Known, error) {
	logger := klog.FromContext(ctx)
	seal := remember.Seal{}
	if a.cfg.RememberSecrets != config.RememberNoSecrets && a.cfg.RememberSecrets != config.RememberPlain {
		var err error
		if seal, err = remember.NewSeal(a.cfg.RememberSecrets); err != nil {
			return nil, nil, err
		}
	}
	keeper, known, err := remember.NewPodKeeper(filepath.Join(a.cfg.DataDir, podsFile), seal, func() *remember.Pods { return n.worthKeeping(a.cfg.RememberSecrets) }, a.clk)
	if err != nil {
		logger.Error(err, "Pods do not start before the API server answers, but for static ones")
	}
	if known == nil {
		known = &remember.Pods{}
	}
	known.Pods = survivors(known.Pods)
	n.podKeeper, n.book = keeper, newBook(known.Pods)
	n.book.note = keeper.Note
	if a.cfg.RememberSecrets == config.RememberNoSecrets && len(known.Secrets) > 0 {
		// They were kept by an earlier run, and are not to be any more.
		known.Secrets = nil
		keeper.Note()
	}
	n.classes = newRuntimeClasses(n.client.NodeV1().RuntimeClasses().Get, known.Handlers)
	n.references = referred.New(ctx, n.client)
	n.references.Recall(known.ConfigMaps, known.Secrets, keeper.Note)
	var services *remember.Known
	n.keeper, services = a.newKeeper(logger, n.sources)
	return known, services, nil
}

// worthKeeping is what the node needs to start its pods as they are.
func (n *node) worthKeeping(secrets string) *remember.Pods {
	out := &remember.Pods{Pods: n.book.list(), Handlers: n.classes.all()}
	out.ConfigMaps, out.Secrets = n.references.Known()
	if secrets == config.RememberNoSecrets {
		out.Secrets = nil
	}
	for _, t := range n.volumes.Tokens() {
		out.Tokens = append(out.Tokens, remember.Token(t))
	}
	return out
}

func tokensOf(known *remember.Pods) []volumes.Token {
	var out []volumes.Token
	for _, t := range known.Tokens {
		out = append(out, volumes.Token(t))
	}
	return out
}
