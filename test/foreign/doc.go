// Package foreign proves on a Kubernetes that is not ours what is said to work on any: the DaemonSet controller with its
// published rights and definitions, plan, why, rollout, the plugin of kubectl, and the page. `make foreign` builds
// etcd, kube-apiserver, kube-controller-manager and kube-scheduler, and runs it; only the nodes are simulated.
package foreign
