// Package fit says whether a pod fits on a node, and if not, all reasons why: taints, affinity, host ports, room,
// disks, even spreading, and what other pods want near them or not. The scheduler decides by it, and whoever wants to
// know beforehand what it would decide.
//
//	Cluster: nodes, pods, namespaces, as events tell of them
//	   Ask(pod) -> Question
//	       First(node, trial) -> the reasons of the first rule that the node fails, which is what users see
//	       All(node, trial)   -> every reason
//
// A Trial asks what would be if some pods came to the node and others left it.
//
// A Cluster keeps, for every node, the sums that decide: what it offers, what its pods ask for, which host ports are
// taken. Of pods and nodes it keeps only what the rules need, not the objects. It is incremental: an event costs the
// pod or node that it is about, never a walk over the others. Rules about other pods read counts by part of the cluster
// that are kept the same way, so a question about one node costs the same in a cluster of ten nodes and of fifty
// thousand. The exception is even spreading of a pod that does not name its node, which counts all nodes once for each
// question.
//
// It is pure: no clock, lock or client; one goroutine owns a Cluster. Events may come in any order (a pod before its
// node, a node deleted before its pods); the answers depend only on the latest state of each object.
//
// A pod that was given a node but whose binding is not yet seen in the API is assumed: it counts like a bound one until
// it is confirmed by SetPod, moved by SetPod, or taken back by Forget or DeletePod.
//
// Volumes that a pod has by a claim are looked at once FollowVolumes was called, and the cluster is told of claims,
// volumes and classes. A claim that waits for its first pod gets its volume with the pod's node: Uses says which. A
// volume that was given away but is not yet seen so in the API is promised.
//
// The list of rules, and what a Reason is, is in question.go. Each rule is a file: room.go says that a node has no room
// or no free port, taints.go that it has a taint, and so on. The scheduler counts the reasons of all nodes for the
// pod's condition (internal/scheduler/placement).
//
// What the rules compare stands below, and knows neither clusters nor rules:
//
//	resources, hostport             what a node has to give
//	nodeaffinity, toleration        which nodes a pod selects, and which taints it bears
//	podaffinity                     which other pods a pod is about
//	volumes                         claims, volumes and disks
package fit
