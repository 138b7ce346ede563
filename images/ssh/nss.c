/* Linked into the programs: users and groups come from files alone, whatever the image's /etc/nsswitch.conf says. A static
   program would load the image's libraries otherwise, which are of another libc. */
#include <nss.h>

__attribute__((constructor)) static void use_files_only(void) {
    static const char *const databases[] = {"passwd", "group", "initgroups", "shadow", "gshadow", "protocols", "services"};

    for (unsigned i = 0; i < sizeof databases / sizeof *databases; i++)
        __nss_configure_lookup(databases[i], "files");
    __nss_configure_lookup("hosts", "files dns");
}
