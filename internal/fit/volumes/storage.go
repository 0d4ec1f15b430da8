package volumes

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/everynode/everynode/internal/objects/volume"
)

// Storage is what a cluster knows of claims and volumes.
type Storage struct {
	claims  map[string]*corev1.PersistentVolumeClaim // by namespace/name
	volumes map[string]*corev1.PersistentVolume
	classes map[string]*storagev1.StorageClass
	// free are the volumes that nobody has, by class and the only host that they are good for. reserved are those that
	// name a claim.
	free     map[pool]map[string]*corev1.PersistentVolume
	reserved map[string]map[string]*corev1.PersistentVolume
	// promised are volumes that were given to a claim, which the API does not show yet: by name, the claim.
	promised map[string]string
	// users counts the pods with a node by the claims they use.
	users map[string]int
}

type pool struct{ class, host string }

// New returns what is known before anything is.
func New() *Storage {
	return &Storage{
		claims: map[string]*corev1.PersistentVolumeClaim{}, volumes: map[string]*corev1.PersistentVolume{},
		classes: map[string]*storagev1.StorageClass{}, free: map[pool]map[string]*corev1.PersistentVolume{},
		reserved: map[string]map[string]*corev1.PersistentVolume{}, promised: map[string]string{},
		users: map[string]int{},
	}
}

// SetClaim takes over the latest object of a claim.
func (s *Storage) SetClaim(object *corev1.PersistentVolumeClaim) {
	s.claims[object.Namespace+"/"+object.Name] = object
}

// DeleteClaim forgets a claim.
func (s *Storage) DeleteClaim(namespace, name string) { delete(s.claims, namespace+"/"+name) }

// SetClass takes over the latest object of a class.
func (s *Storage) SetClass(object *storagev1.StorageClass) { s.classes[object.Name] = object }

// DeleteClass forgets a class.
func (s *Storage) DeleteClass(name string) { delete(s.classes, name) }

// SetVolume takes over the latest object of a volume.
func (s *Storage) SetVolume(object *corev1.PersistentVolume) {
	s.forget(object.Name)
	s.volumes[object.Name] = object
	if object.Spec.ClaimRef != nil {
		delete(s.promised, object.Name)
	}
	s.index(object, true)
}

// DeleteVolume forgets a volume.
func (s *Storage) DeleteVolume(name string) {
	s.forget(name)
	delete(s.promised, name)
}

func (s *Storage) forget(name string) {
	if v := s.volumes[name]; v != nil {
		s.index(v, false)
		delete(s.volumes, name)
	}
}

// Promise gives a volume to a claim before the API shows it.
func (s *Storage) Promise(name, claimKey string) { s.promised[name] = claimKey }

// TakeBack takes back what Promise gave and the API does not show.
func (s *Storage) TakeBack(name, claimKey string) {
	if s.promised[name] == claimKey {
		delete(s.promised, name)
	}
}

// OnlyHost is the host that a volume is good for alone, "" if there are several.
func (s *Storage) OnlyHost(name string) string {
	if v := s.volumes[name]; v != nil {
		return volume.OnlyHost(v)
	}
	return ""
}

func (s *Storage) index(v *corev1.PersistentVolume, add bool) {
	if ref := v.Spec.ClaimRef; ref != nil {
		change(s.reserved, ref.Namespace+"/"+ref.Name, v, add)
		return
	}
	change(s.free, pool{volume.Class(v), volume.OnlyHost(v)}, v, add)
}

func change[K comparable](of map[K]map[string]*corev1.PersistentVolume, key K, v *corev1.PersistentVolume, add bool) {
	if add {
		if of[key] == nil {
			of[key] = map[string]*corev1.PersistentVolume{}
		}
		of[key][v.Name] = v
		return
	}
	delete(of[key], v.Name)
	if len(of[key]) == 0 {
		delete(of, key)
	}
}

// Count adds to how many pods with a node use the claims, which are namespace/name. Nil counts nothing.
func (s *Storage) Count(claims []string, by int) {
	if s == nil {
		return
	}
	for _, key := range claims {
		s.users[key] += by
		if s.users[key] == 0 {
			delete(s.users, key)
		}
	}
}

// Users is how many pods with a node use the claim, which is namespace/name.
func (s *Storage) Users(claim string) int { return s.users[claim] }
