package bootstrap

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
)

const controllerPrefix = "system:controller:"

// controller is a control loop with the account that it can run under, the
// service account of its name in kube-system.
type controller struct {
	name  string
	rules []rbacv1.PolicyRule
}

func controllers() []controller {
	return slices.Concat(
		clusterControllers(), nodeControllers(), workloadControllers(), scalingControllers(), batchControllers(),
		storageControllers(), deviceControllers(),
	)
}

// clusterControllers keep nodes, namespaces, accounts and roles.
func clusterControllers() []controller {
	return []controller{
		{"generic-garbage-collector", []rbacv1.PolicyRule{
			may("get", "list", "watch", "patch", "update", "delete").on("*", "*"),
			recordEvents(),
		}},
		{"namespace-controller", []rbacv1.PolicyRule{
			may("get", "list", "watch", "delete").on(groupCore, "namespaces"),
			may("update").on(groupCore, "namespaces/finalize", "namespaces/status"),
			may("get", "list", "delete", "deletecollection").on("*", "*"),
		}},
		{"node-controller", []rbacv1.PolicyRule{
			may("get", "list", "update", "delete", "patch", "watch").on(groupCore, "nodes"),
			may("patch", "update").on(groupCore, "nodes/status"),
			may("patch", "update").on(groupCore, "pods/status"),
			may("list", "watch", "get", "delete").on(groupCore, "pods"),
			may("list", "watch", "get").on(groupCoordination, "leases"),
			recordEvents(),
		}},
		{"backup-controller", []rbacv1.PolicyRule{
			may("get").on(groupCore, "namespaces"), // which cluster this is
			recordEvents(),
		}},
		{"service-account-controller", []rbacv1.PolicyRule{
			may("create").on(groupCore, "serviceaccounts"),
			may("list", "watch").on(groupCore, "serviceaccounts", "namespaces"),
			recordEvents(),
		}},
		{"resourcequota-controller", []rbacv1.PolicyRule{
			may("list", "watch").on("*", "*"),
			may("update").on(groupCore, "resourcequotas/status"),
			recordEvents(),
		}},
		{"root-ca-cert-publisher", []rbacv1.PolicyRule{
			may("get", "create", "update").on(groupCore, "configmaps"),
			may("list", "watch").on(groupCore, "configmaps", "namespaces"),
			recordEvents(),
		}},
		{"certificate-controller", []rbacv1.PolicyRule{
			may("delete", "get", "list", "watch").on(groupCertificates, "certificatesigningrequests"),
			may("update").on(groupCertificates, "certificatesigningrequests/status", "certificatesigningrequests/approval"),
			may("approve", "sign").signers("kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"),
			may("sign").signers("kubernetes.io/kube-apiserver-client"),
			may("create").on(groupAuthorization, "subjectaccessreviews"),
			may("get", "list", "watch").on(groupCore, "nodes"),
			recordEvents(),
		}},
		{"service-cidrs-controller", []rbacv1.PolicyRule{
			may("get", "list", "watch", "create", "update").on(groupNetworking, "servicecidrs"),
			may("update").on(groupNetworking, "servicecidrs/finalizers", "servicecidrs/status"),
			may("get", "list", "watch").on(groupCore, "services"),
			recordEvents(),
		}},
		{"validatingadmissionpolicy-status-controller", []rbacv1.PolicyRule{
			may("get", "list", "watch").on("admissionregistration.k8s.io", "validatingadmissionpolicies"),
			may("get", "patch", "update").on("admissionregistration.k8s.io", "validatingadmissionpolicies/status"),
			recordEvents(),
		}},
		{"taint-eviction-controller", []rbacv1.PolicyRule{
			may("get", "list", "watch").on(groupCore, "nodes"),
			may("get", "list", "watch", "delete").on(groupCore, "pods"),
			may("update", "patch").on(groupCore, "pods/status"),
			recordEvents(),
		}},
		// It is there when nodes are simulated, and does what agents would do.
		{"node-simulator", []rbacv1.PolicyRule{
			may("get", "create", "patch").on(groupCore, "nodes"),
			may("update").on(groupCore, "nodes/status", "pods/status"),
			may("delete").on(groupCore, "pods"),
			may("get", "create", "update").on(groupCoordination, "leases"),
			may("get").on(groupCore, "configmaps"),
			recordEvents(),
		}},
		{"clusterrole-aggregation-controller", []rbacv1.PolicyRule{
			may("escalate", "get", "list", "patch", "update", "watch").on(groupRBAC, "clusterroles"),
		}},
	}
}

// nodeControllers lead nodes that start.
func nodeControllers() []controller {
	return []controller{
		{"node-startup-controller", []rbacv1.PolicyRule{
			read.on(groupEverynode, "nodestartups"),
			may("update").on(groupEverynode, "nodestartups/status"),
			read.on(groupCore, "nodes", "pods"),
			may("patch").on(groupCore, "nodes"),
			read.on(groupApps, "daemonsets"),
			recordEvents(),
		}},
	}
}

// workloadControllers keep pods and what groups them.
func workloadControllers() []controller {
	return []controller{
		{"daemon-set-controller", []rbacv1.PolicyRule{
			read.on(groupApps, "daemonsets"),
			may("update").on(groupApps, "daemonsets/status"),
			may("update").on(groupApps, "daemonsets/finalizers"),
			may("list", "watch").on(groupCore, "nodes"),
			may("get", "list", "watch", "create", "delete", "patch").on(groupCore, "pods"),
			may("create").on(groupCore, "pods/binding"),
			may("patch").on(groupCore, "pods/resize"),
			may("get", "list", "watch", "create", "delete", "update", "patch").on(groupApps, "controllerrevisions"),
			read.on(groupEverynode, "rolloutpolicies", "nodestartups", "daemonsetvariants"),
			may("get", "list", "watch", "create", "delete", "update", "patch").on(groupEverynode, "daemonsetrollouts"),
			may("update").on(groupEverynode, "rolloutpolicies/status", "daemonsetrollouts/status", "daemonsetvariants/status"),
			recordEvents(),
		}},
		{"replicaset-controller", []rbacv1.PolicyRule{
			read.on(groupApps, "replicasets"),
			may("update").on(groupApps, "replicasets/status", "replicasets/finalizers"),
			may("create", "delete", "list", "patch", "watch").on(groupCore, "pods"),
			recordEvents(),
		}},
		{"replication-controller", []rbacv1.PolicyRule{
			read.on(groupCore, "replicationcontrollers"),
			may("update").on(groupCore, "replicationcontrollers/status", "replicationcontrollers/finalizers"),
			may("create", "delete", "list", "patch", "watch").on(groupCore, "pods"),
			recordEvents(),
		}},
		{"deployment-controller", []rbacv1.PolicyRule{
			may("get", "list", "watch", "update").on(groupApps, "deployments"),
			may("update").on(groupApps, "deployments/status", "deployments/finalizers"),
			may("create", "delete", "get", "list", "patch", "update", "watch").on(groupApps, "replicasets"),
			may("get", "list", "update", "watch").on(groupCore, "pods"),
			recordEvents(),
		}},
		{"statefulset-controller", []rbacv1.PolicyRule{
			read.on(groupApps, "statefulsets"),
			may("update").on(groupApps, "statefulsets/status", "statefulsets/finalizers"),
			may("get", "create", "delete", "update", "patch").on(groupCore, "pods"),
			may("get", "create", "update").on(groupCore, "persistentvolumeclaims"),
			may("update").on(groupCore, "pods/finalizers"), // whose claims may be a pod's
			may("get", "create", "delete", "update", "patch", "list", "watch").on(groupApps, "controllerrevisions"),
			recordEvents(),
		}},
		{"disruption-controller", []rbacv1.PolicyRule{
			may("get", "list", "watch").on(groupApps, "daemonsets", "deployments", "replicasets", "statefulsets"),
			may("get", "list", "watch").on(groupCore, "pods", "replicationcontrollers"),
			may("get", "list", "watch").on(groupPolicy, "poddisruptionbudgets"),
			may("update").on(groupPolicy, "poddisruptionbudgets/status"),
			recordEvents(),
		}},
		{"endpointslice-controller", []rbacv1.PolicyRule{
			may("get", "list", "watch").on(groupCore, "services", "pods", "nodes"),
			may("update").on(groupCore, "services/finalizers"),
			may("create", "delete", "get", "list", "patch", "update", "watch").on(groupDiscovery, "endpointslices"),
			recordEvents(),
		}},
		{"endpoint-controller", []rbacv1.PolicyRule{
			may("get", "list", "watch").on(groupCore, "services", "pods"),
			may("get", "list", "create", "update", "delete", "watch").on(groupCore, "endpoints"),
			may("create").on(groupCore, "endpoints/restricted"),
			recordEvents(),
		}},
		{"endpointslicemirroring-controller", []rbacv1.PolicyRule{
			may("get", "list", "watch").on(groupCore, "services", "endpoints"),
			may("update").on(groupCore, "services/finalizers", "endpoints/finalizers"),
			may("create", "delete", "get", "list", "patch", "update", "watch").on(groupDiscovery, "endpointslices"),
			recordEvents(),
		}},
		{"pod-garbage-collector", []rbacv1.PolicyRule{
			may("list", "watch", "delete").on(groupCore, "pods"),
			may("get", "list", "watch").on(groupCore, "nodes"),
			may("patch").on(groupCore, "pods/status"),
		}},
	}
}

// scalingControllers change how many pods there are.
func scalingControllers() []controller {
	return []controller{
		{"horizontal-pod-autoscaler", []rbacv1.PolicyRule{
			read.on(groupAutoscaling, "horizontalpodautoscalers"),
			may("update").on(groupAutoscaling, "horizontalpodautoscalers/status"),
			may("get", "update").on("*", "*/scale"),
			may("list").on("metrics.k8s.io", "pods"),
			may("get", "list").on("custom.metrics.k8s.io", "*"),
			may("get", "list").on("external.metrics.k8s.io", "*"),
			recordEvents(),
		}},
	}
}

// batchControllers run work that comes to an end.
func batchControllers() []controller {
	return []controller{
		{"job-controller", []rbacv1.PolicyRule{
			may("get", "list", "watch", "update", "patch").on(groupBatch, "jobs"),
			may("update").on(groupBatch, "jobs/status", "jobs/finalizers"),
			may("create", "delete", "list", "patch", "watch").on(groupCore, "pods"),
			recordEvents(),
		}},
		{"cronjob-controller", []rbacv1.PolicyRule{
			may("get", "list", "watch", "update").on(groupBatch, "cronjobs"),
			may("update").on(groupBatch, "cronjobs/status", "cronjobs/finalizers"),
			may("create", "delete", "get", "list", "patch", "update", "watch").on(groupBatch, "jobs"),
			recordEvents(),
		}},
		{"ttl-after-finished-controller", []rbacv1.PolicyRule{
			may("get", "list", "watch", "delete").on(groupBatch, "jobs"),
			recordEvents(),
		}},
	}
}

// storageControllers bind claims to volumes, and keep both while they are in use.
func storageControllers() []controller {
	return []controller{
		{"persistent-volume-binder", []rbacv1.PolicyRule{
			may("get", "list", "watch", "update").on(groupCore, "persistentvolumes", "persistentvolumeclaims"),
			may("update").on(groupCore, "persistentvolumes/status", "persistentvolumeclaims/status"),
			read.on(groupStorage, "storageclasses"),
			may("get", "list", "watch").on(groupCore, "pods"),
			recordEvents(),
		}},
		{"ephemeral-volume-controller", []rbacv1.PolicyRule{
			may("get", "list", "watch").on(groupCore, "pods"),
			may("update").on(groupCore, "pods/finalizers"),
			may("get", "list", "watch", "create").on(groupCore, "persistentvolumeclaims"),
			recordEvents(),
		}},
		{"pv-protection-controller", []rbacv1.PolicyRule{
			may("get", "list", "watch", "update").on(groupCore, "persistentvolumes"),
			recordEvents(),
		}},
		{"pvc-protection-controller", []rbacv1.PolicyRule{
			may("get", "list", "watch", "update").on(groupCore, "persistentvolumeclaims"),
			may("get", "list", "watch").on(groupCore, "pods"),
			recordEvents(),
		}},
	}
}

// deviceControllers keep the claims to devices.
func deviceControllers() []controller {
	return []controller{
		{"resource-claim-controller", []rbacv1.PolicyRule{
			read.on(groupResource, "resourceclaimtemplates"),
			may("get", "list", "watch").on(groupCore, "pods"),
			may("update").on(groupCore, "pods/finalizers"), // whose claims they own
			may("get", "list", "watch", "create", "delete").on(groupResource, "resourceclaims"),
			may("update", "patch").on(groupResource, "resourceclaims", "resourceclaims/status"),
			may("update", "patch").on(groupCore, "pods/status"),
			may("update", "patch").on(groupResource, "resourceclaims/binding"),
			recordEvents(),
		}},
	}
}
