package daemonset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/controller/daemonset/executor"
	"github.com/everynode/everynode/internal/controller/daemonset/fetches/asking"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/placements"
	"github.com/everynode/everynode/internal/controller/daemonset/strange"
	"github.com/everynode/everynode/internal/controller/daemonset/variants/storing"
)

// EventSource is the component name that the recorder should carry.
const EventSource = "daemonset-controller"

// Informers is where the controller reads. A controller-runtime cache is one.
type Informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// ContentAccess reads ConfigMaps and Secrets in some namespaces, and writes copies of them.
type ContentAccess interface {
	// Follow reads a kind in a namespace until ctx ends, and reports whether it can be read. It returns at once.
	Follow(ctx context.Context, namespace string, kind content.Kind, handler toolscache.ResourceEventHandler,
		tell func(contents.Sight))
	CarryOut(ctx context.Context, j *contents.Job) contents.Result
}

// Config is what New needs. Informers, Writer and Recorder are required.
type Config struct {
	Informers Informers
	Writer    executor.Writer
	// Recorder takes events; it must not block. Its source should be EventSource.
	Recorder record.EventRecorder
	// Clock defaults to the real one.
	Clock clock.WithTicker
	// Workers is how many pods are created or deleted at a time. Default 32.
	Workers int
	// Limits bound what is in flight and pace retries; see matrix.Config.
	Limits row.Config
	// AuditInterval is the time between two audits of the running totals. Default 10 minutes.
	AuditInterval time.Duration
	// NormalizeTemplate fills a pod template's defaults in, so that a revision
	// written before a default existed still counts as the same. Optional.
	NormalizeTemplate func(*corev1.PodTemplateSpec)
	// Rollouts writes Everynode's own kinds. With nil no policy is read, and none followed.
	// Where the API does not serve the kinds, they are awaited: a DaemonSet that says that it
	// follows a policy stands still until then, and all others change as without one.
	Rollouts executor.RolloutWriter
	// Content reads and writes what is content. With nil no policy with content can be followed.
	Content ContentAccess
	// CopiesLinger is how long a copy of content stays that nobody needs. Default 2 minutes.
	CopiesLinger time.Duration
	// LiveContent tells that the API server lets this controller alone say what the volumes of running pods show, and
	// what their nodes fetch.
	LiveContent bool
	// FetchImage is the image of Everynode, of which pods are that have nodes fetch images where no agents of ours can be
	// asked; "" for no such pods. FetchBy makes and deletes them.
	FetchImage string
	FetchBy    asking.Writer
	// Startups tells that daemons start on new nodes in the order of NodeStartups, as far as these can be read.
	Startups bool
	// Placements is told by which rules nodes get the daemons that NodeStartups list. Optional.
	Placements *placements.Board
	// Variants writes DaemonSetVariants. With nil none is read. Where the API does not serve them, or they cannot be
	// read, a DaemonSet that has variants keeps those. A guest uses none, and says so in their conditions.
	Variants storing.StatusWriter
	// Speaker writes into objects' conditions that nobody follows them. With nil nobody does: a server of ours says it to
	// whoever reads such an object.
	Speaker strange.Speaker
	// Trials tries pods by variants before nodes are changed to them. With nil none is tried.
	Trials storing.Trier
	// Watches tells when Everynode's own kinds cannot be followed; NewWatches makes one.
	// Without it they are taken to be, and the controller waits for them at its start.
	Watches *Watches
	// Guest tells that another controller makes the pods and looks after revisions, and that admission gives each pod
	// its node's revision. Pods are deleted in their turn, where a policy is followed; see internal/beside.
	Guest bool
	// Record takes a script of all that is decided and from what, for finding out
	// why: see README.md. It grows with every event. Optional.
	Record io.Writer
	// Registerer gets the controller's metrics. Optional.
	Registerer prometheus.Registerer
}

func (c Config) complete() (Config, error) {
	var errs []error
	if c.Informers == nil {
		errs = append(errs, errors.New("field Informers is not set"))
	}
	if c.Writer == nil {
		errs = append(errs, errors.New("field Writer is not set"))
	}
	if c.Recorder == nil {
		errs = append(errs, errors.New("field Recorder is not set"))
	}
	if c.Workers < 0 {
		errs = append(errs, fmt.Errorf("field Workers is %d, must not be negative", c.Workers))
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	c.Limits.Guest, c.Limits.FetchPods = c.Limits.Guest || c.Guest, c.Limits.FetchPods || c.FetchImage != ""
	c.Limits.Fetches = c.Limits.Fetches || c.LiveContent && !c.Limits.Guest || c.Limits.FetchPods
	if c.Workers == 0 {
		c.Workers = 32
	}
	if c.AuditInterval == 0 {
		c.AuditInterval = 10 * time.Minute
	}
	return c, errors.Join(errs...)
}
