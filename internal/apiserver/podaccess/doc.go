// Package podaccess is the API server's way to pods and Services.
//
// The machine of the control plane need not be a node, so it may have no way to the
// network of the pods. The agents have one, and they can be reached, or else there
// would be no logs either. A connection to a pod therefore goes to the agent of its
// node, and that leads it on to the pod's own address. See PodHost and Dial.
package podaccess
