package agent

import (
	"context"
	"path/filepath"

	"k8s.io/klog/v2"

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

// recall reads what an earlier run knew of the node's pods and of services, and prepares what keeps it for the next
// one. The error is for a key that cannot be
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
	keeper, known, err := remember.NewPodKeeper(filepath.Join(a.cfg.DataDir, podsFile), seal,
		func() *remember.Pods { return n.worthKeeping(a.cfg.RememberSecrets) }, a.clk)
	if err != nil {
		logger.Error(err, "Pods do not start before the API server answers, but for static ones")
	}
	if known == nil {
		known = &remember.Pods{}
	}
	known.Pods = shutdown.Survivors(known.Pods)
	n.podKeeper, n.book = keeper, pods.NewBook(known.Pods, keeper.Note)
	if a.cfg.RememberSecrets == config.RememberNoSecrets && len(known.Secrets) > 0 {
		// They were kept by an earlier run, and are not to be any more.
		known.Secrets = nil
		keeper.Note()
	}
	n.classes = objects.NewRuntimeClasses(n.client.NodeV1().RuntimeClasses().Get, known.Handlers)
	n.references = referred.New(ctx, n.client)
	n.references.Recall(known.ConfigMaps, known.Secrets, keeper.Note)
	var services *remember.Known
	n.keeper, services = a.newKeeper(logger, n.sources)
	return known, services, nil
}

// worthKeeping is what the node needs to start its pods as they are.
func (n *node) worthKeeping(secrets string) *remember.Pods {
	out := &remember.Pods{Pods: n.book.List(), Handlers: n.classes.All()}
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
