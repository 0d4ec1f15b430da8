package fit

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// TextDisks is what a node is reported with where another pod uses the disk.
const TextDisks = "node(s) had no available disk"

// disk is a disk of the network that a pod names itself. Two pods of a node share one only if both just read it, where
// its kind allows that.
type disk struct {
	id       string
	readOnly bool
}

// checkDisks: a disk is used by one pod of a node.
func checkDisks(q *Question, node *trialNode) []Reason {
	if len(q.pod.disks) == 0 {
		return nil
	}
	for _, other := range node.Pods {
		for _, used := range other.disks {
			for _, wanted := range q.pod.disks {
				if used.id == wanted.id && !(used.readOnly && wanted.readOnly) {
					return fails(Disks, TextDisks, "", false)
				}
			}
		}
	}
	return nil
}

func disks(spec *corev1.PodSpec) []disk {
	var found []disk
	for i := range spec.Volumes {
		switch v := &spec.Volumes[i]; {
		case v.GCEPersistentDisk != nil:
			found = append(found, disk{"gce " + v.GCEPersistentDisk.PDName, v.GCEPersistentDisk.ReadOnly})
		case v.AWSElasticBlockStore != nil:
			found = append(found, disk{"aws " + v.AWSElasticBlockStore.VolumeID, false})
		case v.ISCSI != nil:
			found = append(found, disk{"iscsi " + v.ISCSI.IQN, v.ISCSI.ReadOnly})
		case v.RBD != nil:
			// Images of the same name are one image if the pods have a monitor in common.
			for _, monitor := range v.RBD.CephMonitors {
				found = append(found, disk{fmt.Sprintf("rbd %q %q %q", monitor, v.RBD.RBDPool, v.RBD.RBDImage), v.RBD.ReadOnly})
			}
		}
	}
	return found
}
