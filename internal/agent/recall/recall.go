// Package recall has a node start with what an earlier run of its agent knew of its pods, and of the objects that these
// refer to.
package recall

import (
	"context"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/objects"
	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/referred"
	"github.com/everynode/everynode/internal/agent/remember"
	"github.com/everynode/everynode/internal/agent/shutdown"
	"github.com/everynode/everynode/internal/agent/volumes"
)

// podsFile, in the data folder, has what the node needs to start its pods as they were.
const podsFile = "pods.jsonl"

// Config is what this needs of the node.
type Config struct {
	DataDir string
	// Secrets says whether Secrets are kept, and with which key; see package config.
	Secrets string
	// MemoryDir is a folder in memory, for Secrets that are not to be on a disk; see package config.
	MemoryDir string
	Client    kubernetes.Interface
	// Tokens returns the tokens that pods have now.
	Tokens func() []volumes.Token
	Clock  clock.WithTicker
}

// Recalled is what is known of the pods, and what keeps it for the next run.
type Recalled struct {
	Keeper *remember.PodKeeper
	// Memory keeps what is in no file of the data folder; nil if there is nowhere to keep it.
	Memory     *remember.PodKeeper
	Book       *pods.Book
	Classes    *objects.RuntimeClasses
	References *referred.Cache
	// Pods is what an earlier run knew.
	Pods *remember.Pods

	config Config
}

// Open reads what an earlier run knew of the node's pods, and prepares what keeps it for the next one. The error is for
// a key that cannot be used; a file that cannot be read is told in the log, and the node then needs the API server to
// start pods.
func Open(ctx context.Context, c Config) (*Recalled, error) {
	r := &Recalled{config: c}
	logger := klog.FromContext(ctx)
	seal := remember.Seal{}
	if c.Secrets != config.RememberNoSecrets && c.Secrets != config.RememberPlain {
		var err error
		if seal, err = remember.NewSeal(c.Secrets); err != nil {
			return nil, err
		}
	}
	keeper, known, err := remember.NewPodKeeper(filepath.Join(c.DataDir, podsFile), seal,
		r.worthKeeping, c.Clock)
	if err != nil {
		logger.Error(err, "Pods do not start before the API server answers, but for static ones")
	}
	if known == nil {
		known = &remember.Pods{}
	}
	known.Pods = shutdown.Survivors(known.Pods)
	r.Pods, r.Keeper, r.Book = known, keeper, pods.NewBook(known.Pods, r.note)
	inMemory := r.openMemory(ctx)
	if c.Secrets == config.RememberNoSecrets && len(known.Secrets) > 0 {
		// They were kept by an earlier run, and are not to be any more.
		known.Secrets = nil
		keeper.Note()
	}
	r.Classes = objects.NewRuntimeClasses(c.Client.NodeV1().RuntimeClasses().Get, known.Handlers)
	r.References = referred.New(ctx, c.Client)
	had := map[types.UID]bool{}
	for _, p := range inMemory.Pods {
		had[p.Pod.UID] = true
	}
	var ran, ranThen []*corev1.Pod
	for _, p := range known.Pods {
		ran = append(ran, p.Pod)
		if had[p.Pod.UID] {
			ranThen = append(ranThen, p.Pod)
		}
	}
	r.References.Recall(ran, known.ConfigMaps, known.Secrets, r.note)
	r.References.Recall(ranThen, nil, inMemory.Secrets, r.note)
	return r, nil
}

// worthKeeping is what the node needs to start its pods as they are.
func (r *Recalled) worthKeeping() *remember.Pods {
	out := &remember.Pods{Pods: r.Book.List(), Handlers: r.Classes.All()}
	out.ConfigMaps, out.Secrets = r.References.Known()
	if r.config.Secrets == config.RememberNoSecrets {
		out.Secrets = nil
	}
	for _, t := range r.config.Tokens() {
		out.Tokens = append(out.Tokens, remember.Token(t))
	}
	return out
}

// Tokens returns those that pods had in the earlier run.
func (r *Recalled) Tokens() []volumes.Token {
	var out []volumes.Token
	for _, t := range r.Pods.Tokens {
		out = append(out, volumes.Token(t))
	}
	return out
}
