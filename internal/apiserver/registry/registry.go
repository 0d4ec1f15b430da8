// Package registry is the list of the API kinds that are served, and the
// behaviour that goes beyond storing them: binding, eviction, logs, and so on.
package registry

import (
	"github.com/everynode/everynode/internal/apiserver/registry/admission"
	"github.com/everynode/everynode/internal/apiserver/registry/certificatesigningrequest"
	"github.com/everynode/everynode/internal/apiserver/registry/configmap"
	"github.com/everynode/everynode/internal/apiserver/registry/controllerrevision"
	"github.com/everynode/everynode/internal/apiserver/registry/cronjob"
	"github.com/everynode/everynode/internal/apiserver/registry/csi"
	"github.com/everynode/everynode/internal/apiserver/registry/daemonset"
	"github.com/everynode/everynode/internal/apiserver/registry/daemonsetvariant"
	"github.com/everynode/everynode/internal/apiserver/registry/deployment"
	"github.com/everynode/everynode/internal/apiserver/registry/devices"
	"github.com/everynode/everynode/internal/apiserver/registry/endpoints"
	"github.com/everynode/everynode/internal/apiserver/registry/endpointslice"
	"github.com/everynode/everynode/internal/apiserver/registry/event"
	"github.com/everynode/everynode/internal/apiserver/registry/flowcontrol"
	"github.com/everynode/everynode/internal/apiserver/registry/horizontalpodautoscaler"
	"github.com/everynode/everynode/internal/apiserver/registry/job"
	"github.com/everynode/everynode/internal/apiserver/registry/lease"
	"github.com/everynode/everynode/internal/apiserver/registry/limitrange"
	"github.com/everynode/everynode/internal/apiserver/registry/namespace"
	"github.com/everynode/everynode/internal/apiserver/registry/networking"
	"github.com/everynode/everynode/internal/apiserver/registry/node"
	"github.com/everynode/everynode/internal/apiserver/registry/nodestartup"
	"github.com/everynode/everynode/internal/apiserver/registry/persistentvolume"
	"github.com/everynode/everynode/internal/apiserver/registry/persistentvolumeclaim"
	"github.com/everynode/everynode/internal/apiserver/registry/pod"
	"github.com/everynode/everynode/internal/apiserver/registry/poddisruptionbudget"
	"github.com/everynode/everynode/internal/apiserver/registry/podtemplate"
	"github.com/everynode/everynode/internal/apiserver/registry/priorityclass"
	"github.com/everynode/everynode/internal/apiserver/registry/rbac"
	"github.com/everynode/everynode/internal/apiserver/registry/replicaset"
	"github.com/everynode/everynode/internal/apiserver/registry/replicationcontroller"
	"github.com/everynode/everynode/internal/apiserver/registry/resourcequota"
	"github.com/everynode/everynode/internal/apiserver/registry/rollout"
	"github.com/everynode/everynode/internal/apiserver/registry/runtimeclass"
	"github.com/everynode/everynode/internal/apiserver/registry/secret"
	"github.com/everynode/everynode/internal/apiserver/registry/service"
	"github.com/everynode/everynode/internal/apiserver/registry/serviceaccount"
	"github.com/everynode/everynode/internal/apiserver/registry/statefulset"
	"github.com/everynode/everynode/internal/apiserver/registry/storage"
	"github.com/everynode/everynode/internal/apiserver/resource"
)

// Kinds lists every served kind.
func Kinds() []resource.Definition {
	kinds := []resource.Definition{
		configmap.Definition(),
		endpoints.Definition(),
		event.Definition(),
		limitrange.Definition(),
		namespace.Definition(),
		node.Definition(),
		persistentvolume.Definition(),
		persistentvolumeclaim.Definition(),
		pod.Definition(),
		podtemplate.Definition(),
		replicationcontroller.Definition(),
		resourcequota.Definition(),
		secret.Definition(),
		service.Definition(),
		serviceaccount.Definition(),
		controllerrevision.Definition(),
		daemonset.Definition(),
		deployment.Definition(),
		replicaset.Definition(),
		statefulset.Definition(),
		job.Definition(),
		cronjob.Definition(),
		horizontalpodautoscaler.Definition(),
		certificatesigningrequest.Definition(),
		lease.Definition(),
		endpointslice.Definition(),
		poddisruptionbudget.Definition(),
		priorityclass.Definition(),
		runtimeclass.Definition(),
	}
	kinds = append(kinds, csi.Definitions()...)
	kinds = append(kinds, storage.Definitions()...)
	kinds = append(kinds, networking.Definitions()...)
	kinds = append(kinds, devices.Definitions()...)
	kinds = append(kinds, rbac.Definitions()...)
	kinds = append(kinds, flowcontrol.Definitions()...)
	kinds = append(kinds, rollout.Definitions()...)
	kinds = append(kinds, nodestartup.Definition(), daemonsetvariant.Definition())
	return append(kinds, admission.Definitions()...)
}
