// Package volumes puts the volumes of pods on a node's disk and says how containers mount them.
//
// SetUp makes every volume of a pod ready, or makes it again what it should be; it is called as often as one likes.
// Mounts gives the mounts of one container, TearDown takes away all that the pod has here, Sweep does that for pods
// that are gone, and Run keeps config maps, secrets, downward API files and tokens up to date.
//
// On disk, with the names that Kubernetes' tools know:
//
//	<RootDir>/<pod UID>/volumes/kubernetes.io~<kind>/<volume>     the volume, except a hostPath's, which is where it is
//	<RootDir>/<pod UID>/volume-subpaths/<volume>/<container>/<i>  bind mount of a subPath
//
// Invariants:
//   - Nothing half-made is ever seen as ready: a directory gets its name, and files their link ..data, in one rename.
//   - No path that a pod writes (subPath, item paths, links inside a volume) leads out of its volume: paths are opened
//     from the volume's directory by the kernel's own bounded walk, and what was opened is what gets mounted.
//   - Removing a pod's directory never descends into a mount, so it can't delete what belongs to the host.
package volumes
