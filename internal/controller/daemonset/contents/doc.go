// Package contents decides which content each DaemonSet under a policy has, and which copies of it there
// are to be.
//
// A Book stands between those who tell of DaemonSets, policies and pods, and the matrix. What they say goes
// through it (Step); where a policy makes content a part of revisions it adds the content to the name and
// the digest of the newest revision. Without such a policy everything goes through as it is. Of
// ConfigMaps and Secrets it hears by Tell. Jobs returns the copies that are to be made and deleted now.
//
// It is pure: no clock, lock, goroutine, log or client. One goroutine owns a Book.
//
// Rules:
//
//   - A content becomes part of the newest revision when all its copies are there, and its manifest.
//   - An object is hashed when it changes, once for each DaemonSet that names it; never for a node or a pod.
//   - For an object that is missing there is an empty copy, which environment variables refer to.
//   - Copies of the stable and of the target revision are kept, and those that some pod refers to. One that
//     somebody deletes is made again of what was known of it.
//   - What cannot be read, has no room or is not what it says makes the policy one that cannot be
//     followed: nothing changes, and the reason is told.
//   - Without a policy, or with one that does not want content, pods that refer to copies are as good as
//     others of their template: nothing restarts, and the copies stay as long as such pods do. The stable revision
//     keeps its content until the newest one is everywhere; names.go says which pods have it.
package contents
