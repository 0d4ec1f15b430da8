package volumes

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Disk is a disk of the network that a pod names itself. Two pods of a node share one only if both just read it, where
// its kind allows that.
type Disk struct {
	id       string
	readOnly bool
}

// Conflicts reports whether two pods of one node cannot use these disks.
func (d Disk) Conflicts(other Disk) bool {
	return d.id == other.id && !(d.readOnly && other.readOnly)
}

// Disks lists those that a pod names itself.
func Disks(spec *corev1.PodSpec) []Disk {
	var found []Disk
	for i := range spec.Volumes {
		switch v := &spec.Volumes[i]; {
		case v.GCEPersistentDisk != nil:
			found = append(found, Disk{"gce " + v.GCEPersistentDisk.PDName, v.GCEPersistentDisk.ReadOnly})
		case v.AWSElasticBlockStore != nil:
			found = append(found, Disk{"aws " + v.AWSElasticBlockStore.VolumeID, false})
		case v.ISCSI != nil:
			found = append(found, Disk{"iscsi " + v.ISCSI.IQN, v.ISCSI.ReadOnly})
		case v.RBD != nil:
			// Images of the same name are one image if the pods have a monitor in common.
			for _, monitor := range v.RBD.CephMonitors {
				found = append(found, Disk{fmt.Sprintf("rbd %q %q %q", monitor, v.RBD.RBDPool, v.RBD.RBDImage),
					v.RBD.ReadOnly})
			}
		}
	}
	return found
}
