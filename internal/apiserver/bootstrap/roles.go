package bootstrap

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/everynode/everynode/internal/node/peer"
	"github.com/everynode/everynode/internal/node/trust"
	"github.com/everynode/everynode/internal/storage/members"
)

// Labels of roles whose rules the roles admin, edit and view collect.
const (
	toAdmin = "rbac.authorization.k8s.io/aggregate-to-admin"
	toEdit  = "rbac.authorization.k8s.io/aggregate-to-edit"
	toView  = "rbac.authorization.k8s.io/aggregate-to-view"
)

// ClusterRoles lists the default cluster roles.
func ClusterRoles() []rbacv1.ClusterRole {
	roles := []rbacv1.ClusterRole{
		clusterRole("cluster-admin", all.on("*", "*"), all.at("*")),
	}
	roles = append(roles, identityRoles()...)
	roles = append(roles, peopleRoles()...)
	roles = append(roles, nodeRoles()...)
	roles = append(roles, schedulerRole(), managerRole(), provisionerRole())
	roles = append(roles, contentRoles()...)
	for _, c := range controllers() {
		roles = append(roles, clusterRole(controllerPrefix+c.name, c.rules...))
	}
	return roles
}

// contentRoles are bound to nobody: a RoleBinding in a namespace gives them to the DaemonSet controller's
// account, so that a RolloutPolicy there can make ConfigMaps, or Secrets too, a part of revisions.
func contentRoles() []rbacv1.ClusterRole {
	copies := may("get", "list", "watch", "create", "update", "delete")
	return []rbacv1.ClusterRole{
		clusterRole("everynode:content", copies.on(groupCore, "configmaps")),
		clusterRole("everynode:content-secrets", copies.on(groupCore, "secrets")),
	}
}

// ClusterRoleBindings lists the default bindings.
func ClusterRoleBindings() []rbacv1.ClusterRoleBinding {
	bindings := []rbacv1.ClusterRoleBinding{
		clusterBinding("cluster-admin", "cluster-admin", group("system:masters")),
		clusterBinding("system:discovery", "system:discovery", group("system:authenticated")),
		clusterBinding("system:basic-user", "system:basic-user", group("system:authenticated")),
		clusterBinding("system:public-info-viewer", "system:public-info-viewer",
			group("system:authenticated"), group("system:unauthenticated")),
		clusterBinding("system:monitoring", "system:monitoring", group("system:monitoring")),
		clusterBinding("system:service-account-issuer-discovery", "system:service-account-issuer-discovery",
			group("system:serviceaccounts")),
		clusterBinding("system:node-proxier", "system:node-proxier", user("system:kube-proxy")),
		clusterBinding("system:kube-scheduler", "system:kube-scheduler", user("system:kube-scheduler")),
		clusterBinding(
			"system:kube-controller-manager", "system:kube-controller-manager", user("system:kube-controller-manager"),
		),
		clusterBinding("system:node", "system:node", group("system:nodes")),
		clusterBinding("system:node-bootstrapper", "system:node-bootstrapper", group("system:bootstrappers")),
		clusterBinding("everynode:server-bootstrapper", "everynode:server-bootstrapper", group(members.Group)),
		clusterBinding(
			"system:node-autoapprove-bootstrap",
			"system:certificates.k8s.io:certificatesigningrequests:nodeclient",
			group("system:bootstrappers"),
		),
		clusterBinding(
			"system:node-autoapprove-certificate-rotation",
			"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
			group("system:nodes"),
		),
	}
	for _, c := range controllers() {
		bindings = append(bindings, clusterBinding(controllerPrefix+c.name, controllerPrefix+c.name,
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system", Name: c.name}))
	}
	return bindings
}

// identityRoles are what everybody may do.
func identityRoles() []rbacv1.ClusterRole {
	return []rbacv1.ClusterRole{
		clusterRole("system:discovery", get.at("/livez", "/readyz", "/healthz", "/version", "/version/",
			"/openapi", "/openapi/*", "/api", "/api/*", "/apis", "/apis/*")),
		clusterRole("system:basic-user",
			may("create").on(groupAuthorization, "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
			may("create").on(groupAuthentication, "selfsubjectreviews")),
		clusterRole("system:public-info-viewer", get.at("/livez", "/readyz", "/healthz", "/version", "/version/")),
		clusterRole(
			"system:monitoring",
			get.at("/healthz", "/healthz/*", "/livez", "/livez/*", "/readyz", "/readyz/*", "/metrics", "/metrics/slis"),
		),
		clusterRole(
			"system:service-account-issuer-discovery",
			get.at(
				"/.well-known/openid-configuration", "/.well-known/openid-configuration/", "/openid/v1/jwks", "/openid/v1/jwks/",
			),
		),
		clusterRole("system:auth-delegator",
			may("create").on(groupAuthentication, "tokenreviews"),
			may("create").on(groupAuthorization, "subjectaccessreviews")),
		clusterRole("system:certificates.k8s.io:certificatesigningrequests:nodeclient",
			may("create").on(groupCertificates, "certificatesigningrequests/nodeclient")),
		clusterRole("system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
			may("create").on(groupCertificates, "certificatesigningrequests/selfnodeclient")),
		clusterRole("system:certificates.k8s.io:kube-apiserver-client-approver",
			may("approve").signers("kubernetes.io/kube-apiserver-client")),
		clusterRole("system:certificates.k8s.io:kube-apiserver-client-kubelet-approver",
			may("approve").signers("kubernetes.io/kube-apiserver-client-kubelet")),
		clusterRole("system:certificates.k8s.io:kubelet-serving-approver",
			may("approve").signers("kubernetes.io/kubelet-serving")),
	}
}

// peopleRoles are what people get in a namespace: admin, edit and view. Their
// rules come from the aggregate-to roles, to which others can be added.
func peopleRoles() []rbacv1.ClusterRole {
	edit := aggregated("edit", toEdit)
	view := aggregated("view", toView)
	return []rbacv1.ClusterRole{
		aggregated("admin", toAdmin),
		labelled(edit, toAdmin),
		labelled(view, toEdit),
		labelled(clusterRole("system:aggregate-to-admin",
			may("create").on(groupAuthorization, "localsubjectaccessreviews"),
			append(append(verbs{}, read...), write...).on(groupRBAC, "roles", "rolebindings"),
			approve()), toAdmin),
		labelled(clusterRole("system:aggregate-to-edit", editRules()...), toEdit),
		labelled(clusterRole("system:aggregate-to-view", viewRules()...), toView),
		// Not by the name that metrics-server has for the same: whoever removes that would remove this too.
		labelled(
			clusterRole("everynode:aggregate-metrics-to-view", read.on("metrics.k8s.io", "nodes", "pods")), toView, toEdit,
			toAdmin,
		),
	}
}

// approve is to pause rollouts, to approve their steps and so on. It is not in edit:
// who may change a template should not by that alone be able to approve the change.
func approve() rbacv1.PolicyRule {
	return may("update", "patch", "delete", "deletecollection").on(groupEverynode, "daemonsetrollouts")
}

// editRules leaves out reading through pods what view cannot see: secrets, exec
// and the accounts' tokens are in edit, not in view.
func editRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		read.on(groupCore, "pods/attach", "pods/proxy", "pods/exec", "pods/portforward", "secrets", "services/proxy"),
		may("impersonate").on(groupCore, "serviceaccounts"),
		write.on(groupCore, "pods", "pods/attach", "pods/proxy", "pods/exec", "pods/portforward"),
		may("create").on(groupCore, "pods/eviction"),
		write.on(
			groupCore, "configmaps", "events", "persistentvolumeclaims", "replicationcontrollers",
			"replicationcontrollers/scale", "secrets", "serviceaccounts", "services", "services/proxy",
		),
		may("create").on(groupCore, "serviceaccounts/token"),
		write.on(
			groupApps, "daemonsets", "deployments", "deployments/rollback", "deployments/scale", "replicasets",
			"replicasets/scale", "statefulsets", "statefulsets/scale",
		),
		write.on(groupAutoscaling, "horizontalpodautoscalers"),
		write.on(groupBatch, "cronjobs", "jobs"),
		write.on(groupNetworking, "ingresses", "networkpolicies"),
		write.on(groupPolicy, "poddisruptionbudgets"),
		write.on(groupResource, "resourceclaims", "resourceclaimtemplates"),
		write.on(groupEverynode, "rolloutpolicies", "daemonsetvariants"),
		append(append(verbs{}, read...), write...).on(groupCoordination, "leases"),
	}
}

func viewRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		read.on(
			groupCore, "configmaps", "endpoints", "persistentvolumeclaims", "persistentvolumeclaims/status", "pods",
			"serviceaccounts",
			"services", "services/status", "bindings", "events", "limitranges", "namespaces", "namespaces/status", "pods/log",
			"pods/status",
			"replicationcontrollers", "replicationcontrollers/scale", "replicationcontrollers/status", "resourcequotas",
			"resourcequotas/status",
		),
		read.on(groupDiscovery, "endpointslices"),
		read.on(groupApps, "controllerrevisions", "daemonsets", "daemonsets/status", "deployments", "deployments/scale",
			"deployments/status", "replicasets", "replicasets/scale", "replicasets/status", "statefulsets",
			"statefulsets/scale", "statefulsets/status"),
		read.on(groupAutoscaling, "horizontalpodautoscalers", "horizontalpodautoscalers/status"),
		read.on(groupBatch, "cronjobs", "cronjobs/status", "jobs", "jobs/status"),
		read.on(groupNetworking, "ingresses", "ingresses/status", "networkpolicies"),
		read.on(groupPolicy, "poddisruptionbudgets", "poddisruptionbudgets/status"),
		read.on(groupResource, "resourceclaims", "resourceclaims/status", "resourceclaimtemplates"),
		read.on(groupEverynode, "rolloutpolicies", "rolloutpolicies/status", "daemonsetrollouts", "daemonsetrollouts/status",
			"daemonsetvariants", "daemonsetvariants/status"),
	}
}

// nodeRoles are what nodes may do, before and after they have joined, and what
// the service proxy on a node may do.
func nodeRoles() []rbacv1.ClusterRole {
	return []rbacv1.ClusterRole{
		clusterRole(
			"system:node-bootstrapper",
			may("create", "get", "list", "watch").on(groupCertificates, "certificatesigningrequests"),
		),
		clusterRole("everynode:server-bootstrapper", may("post").at(members.Path)),
		clusterRole("system:node", NodeRules()...),
		clusterRole("system:node-proxier",
			read.on(groupCore, "services", "endpoints", "nodes"),
			may("list", "watch").on(groupDiscovery, "endpointslices"),
			may("list", "watch").on(groupNetworking, "servicecidrs"),
			recordEvents()),
		clusterRole("system:kubelet-api-admin",
			append(append(verbs{}, read...), "proxy").on(groupCore, "nodes"),
			all.on(
				groupCore, "nodes/proxy", "nodes/metrics", "nodes/stats", "nodes/log", "nodes/configz", "nodes/healthz",
				"nodes/pods",
			)),
	}
}

// NodeRules is what a node needs to run its pods. The node authorizer narrows
// the rules about secrets, config maps, accounts and pods to the node's own.
func NodeRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		get.at(trust.Path), // which authorities count
		may("create").on(groupAuthentication, "tokenreviews"),
		may("create").on(groupAuthorization, "localsubjectaccessreviews", "subjectaccessreviews"),
		read.on(groupCore, "services"),
		get.on(groupCore, "endpoints"),
		// The agent of a node is its service proxy and its name server too.
		may("list", "watch").on(groupCore, "namespaces"),
		may("list", "watch").on(groupDiscovery, "endpointslices"),
		// It is the pods' network too.
		may("list", "watch").on(peer.GroupVersion.Group, peer.Resource),
		read.on("node.k8s.io", "runtimeclasses"),
		may("create", "get", "list", "watch").on(groupCore, "nodes"),
		may("update", "patch").on(groupCore, "nodes/status"),
		may("update", "patch").on(groupCore, "nodes"),
		recordEvents(),
		read.on(groupCore, "pods"),
		may("create", "delete").on(groupCore, "pods"),
		may("update", "patch").on(groupCore, "pods/status"),
		may("create").on(groupCore, "pods/eviction"),
		read.on(groupCore, "secrets", "configmaps"),
		get.on(groupCore, "serviceaccounts"),
		may("create").on(groupCore, "serviceaccounts/token"),
		may("create", "get", "list", "watch").on(groupCertificates, "certificatesigningrequests"),
		may("get", "create", "update", "patch", "delete").on(groupCoordination, "leases"),
		may("get", "create", "update", "patch", "delete").on(groupStorage, "csinodes"),
		read.on(groupStorage, "csidrivers"),
		get.on(groupStorage, "volumeattachments"),
		get.on(groupCore, "persistentvolumes", "persistentvolumeclaims"),
		may("update", "patch").on(groupCore, "persistentvolumeclaims/status"),
		get.on(groupResource, "resourceclaims"),
		may("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection").on(
			groupResource, "resourceslices",
		),
	}
}

// provisionerRole is for programs that make volumes for claims.
func provisionerRole() rbacv1.ClusterRole {
	return clusterRole("system:persistent-volume-provisioner",
		may("get", "list", "watch", "create", "delete").on(groupCore, "persistentvolumes"),
		may("get", "list", "watch", "update").on(groupCore, "persistentvolumeclaims"),
		read.on(groupStorage, "storageclasses"),
		may("watch").on(groupCore, "events"),
		recordEvents())
}

func schedulerRole() rbacv1.ClusterRole {
	return clusterRole("system:kube-scheduler",
		recordEvents(),
		may("create").on(groupCoordination, "leases"),
		may("get", "list", "update", "watch").on(groupCoordination, "leases"),
		read.on(groupCore, "nodes", "namespaces", "services"),
		may("delete", "get", "list", "watch").on(groupCore, "pods"),
		may("create").on(groupCore, "bindings", "pods/binding"),
		may("patch", "update").on(groupCore, "pods/status"),
		read.on(groupApps, "replicasets"),
		read.on(groupPolicy, "poddisruptionbudgets"),
		read.on(groupScheduling, "priorityclasses"),
		may("get", "list", "watch", "update", "patch").on(groupCore, "persistentvolumes", "persistentvolumeclaims"),
		read.on(groupStorage, "storageclasses"),
		read.on(groupResource, "deviceclasses", "resourceslices"),
		may("get", "list", "watch", "update", "patch").on(groupResource, "resourceclaims", "resourceclaims/status"),
		may("update", "patch").on(groupResource, "resourceclaims/binding"),
		may("update").on(groupCore, "pods/finalizers"),
		may("create").on(groupAuthentication, "tokenreviews"),
		may("create").on(groupAuthorization, "subjectaccessreviews"))
}

// managerRole is for the cache that the control loops share, and for the election
// of the server whose loops work.
func managerRole() rbacv1.ClusterRole {
	return clusterRole("system:kube-controller-manager",
		may("list", "watch").on("*", "*"),
		may("get", "create", "update").on(groupCoordination, "leases"),
		recordEvents())
}

// Roles lists the default roles that are good in one namespace.
func Roles() []rbacv1.Role {
	return []rbacv1.Role{{
		ObjectMeta: bootstrapMeta("kube-system", controllerPrefix+"token-cleaner"),
		Rules:      []rbacv1.PolicyRule{may("get", "watch", "list", "delete").on(groupCore, "secrets"), recordEvents()},
	}, {
		// The records of nodes' identities.
		ObjectMeta: bootstrapMeta("kube-system", controllerPrefix+"certificate-controller"),
		Rules:      []rbacv1.PolicyRule{may("get", "list", "create", "update", "delete").on(groupCore, "secrets")},
	}, {
		// For API servers of others: how they recognize clients of this cluster.
		ObjectMeta: bootstrapMeta("kube-system", "extension-apiserver-authentication-reader"),
		Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{groupCore}, Resources: []string{"configmaps"},
				ResourceNames: []string{"extension-apiserver-authentication"}},
		},
	}}
}

// RoleBindings lists the bindings of Roles.
func RoleBindings() []rbacv1.RoleBinding {
	var bindings []rbacv1.RoleBinding
	for _, name := range []string{"token-cleaner", "certificate-controller"} {
		bindings = append(bindings, rbacv1.RoleBinding{
			ObjectMeta: bootstrapMeta("kube-system", controllerPrefix+name),
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: controllerPrefix + name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system", Name: name}},
		})
	}
	return bindings
}
