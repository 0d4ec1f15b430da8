// Package credentialprovider asks programs of the node for the credentials with which images are pulled, as a kubelet
// does: which program is for which images says a CredentialProviderConfig, and a program reads a
// CredentialProviderRequest and writes a CredentialProviderResponse. What it says is remembered in memory for as long
// as it says.
//
// A program runs as root, has a minute, and ends with all that it started. Of what it writes no more than a bound is
// read. One that fails keeps nobody from pulling an image that needs no credentials; why it failed is told to who
// asked.
package credentialprovider
