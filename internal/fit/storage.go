package fit

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/everynode/everynode/internal/fit/volumes"
)

// FollowVolumes has the rules look at the claims of pods. Who does not tell the cluster of claims and volumes must not
// call it.
func (c *Cluster) FollowVolumes() {
	c.storage = volumes.New()
}

// SetClaim takes over the latest object of a claim.
func (c *Cluster) SetClaim(object *corev1.PersistentVolumeClaim) { c.storage.SetClaim(object) }

// DeleteClaim forgets a claim.
func (c *Cluster) DeleteClaim(namespace, name string) { c.storage.DeleteClaim(namespace, name) }

// SetClass takes over the latest object of a class.
func (c *Cluster) SetClass(object *storagev1.StorageClass) { c.storage.SetClass(object) }

// DeleteClass forgets a class.
func (c *Cluster) DeleteClass(name string) { c.storage.DeleteClass(name) }

// SetVolume takes over the latest object of a volume.
func (c *Cluster) SetVolume(object *corev1.PersistentVolume) { c.storage.SetVolume(object) }

// DeleteVolume forgets a volume.
func (c *Cluster) DeleteVolume(name string) { c.storage.DeleteVolume(name) }

// Promise gives a volume to a claim before the API shows it.
func (c *Cluster) Promise(name, claimKey string) { c.storage.Promise(name, claimKey) }

// TakeBack takes back what Promise gave and the API does not show.
func (c *Cluster) TakeBack(name, claimKey string) { c.storage.TakeBack(name, claimKey) }

// OnlyHost is the host that a volume is good for alone, "" if there are several.
func (c *Cluster) OnlyHost(name string) string { return c.storage.OnlyHost(name) }
