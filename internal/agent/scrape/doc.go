// Package scrape shows what a node does to those who scrape it, with the names and labels of a kubelet's metrics, so
// that dashboards and alerts made for kubelets work.
//
//	/metrics           the agent itself
//	/metrics/resource  processor time and memory of the node, its pods and their containers: what metrics-server reads
//	/metrics/cadvisor  the same and much more, from cgroups and network namespaces
//	/metrics/probes    how probes ended
//
// Nothing is measured before somebody asks.
package scrape
