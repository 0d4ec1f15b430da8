// Package resourcequota refuses what would take more than a ResourceQuota of its namespace leaves. The library decides
// and charges; what objects use is measured by internal/objects/quota.
package resourcequota

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/tools/cache"

	"github.com/everynode/everynode/internal/objects/quota"
)

// workers is how many namespaces are charged at a time.
const workers = 5

// Plugin is the admission plugin.
type Plugin struct {
	*resourcequota.QuotaAdmission
	quotas cache.SharedIndexInformer
	synced atomic.Bool
}

var _ admission.ValidationInterface = &Plugin{}

// New makes the plugin, which reads quotas from the informer.
func New(quotas cache.SharedIndexInformer) (*Plugin, error) {
	library, err := resourcequota.NewResourceQuota(nil, workers)
	if err != nil {
		return nil, fmt.Errorf("set up quotas: %w", err)
	}
	return &Plugin{QuotaAdmission: library, quotas: quotas}, nil
}

// SetDrainedNotification is told when the server ends; the library wants to know that before anything else.
func (p *Plugin) SetDrainedNotification(stop <-chan struct{}) {
	p.QuotaAdmission.SetDrainedNotification(stop)
	events := map[schema.GroupResource]struct{}{corev1.Resource("events"): {},
		{Group: "events.k8s.io", Resource: "events"}: {}}
	p.SetQuotaConfiguration(generic.NewConfiguration(quota.Evaluators(nil, time.Now), events))
}

// Validate implements admission.ValidationInterface. Where no quota is, a write costs one look into memory: the library
// would have the writes of a namespace wait for each other.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if a.GetNamespace() == "" || p.none(a.GetNamespace()) {
		return nil
	}
	return p.QuotaAdmission.Validate(ctx, a, o)
}

// none says that a namespace has no quota.
func (p *Plugin) none(namespace string) bool {
	if !p.synced.Load() {
		if !p.quotas.HasSynced() {
			return false
		}
		p.synced.Store(true)
	}
	found, err := p.quotas.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	return err == nil && len(found) == 0
}
