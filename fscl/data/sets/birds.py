"""Birds: 60 classes of CUB-200-2011 (Wah, Branson, Welinder, Perona and Belongie 2011), called as there.

`birds_144.tar` has 30 photographs of each, the shorter side 144 pixels. What is read, and how the classes are split, is said
in `fscl.data.fine_grained`.
"""

from collections.abc import Mapping
from typing import Any, Literal

from fscl.data.fine_grained import FineGrained
from fscl.data.sets.cub import CUB

CLASSES = """
007.Parakeet_Auklet 009.Brewer_Blackbird 020.Yellow_breasted_Chat 021.Eastern_Towhee 029.American_Crow 030.Fish_Crow
031.Black_billed_Cuckoo 033.Yellow_billed_Cuckoo 036.Northern_Flicker 042.Vermilion_Flycatcher 045.Northern_Fulmar
046.Gadwall 047.American_Goldfinch 052.Pied_billed_Grebe 056.Pine_Grosbeak 064.Ring_billed_Gull
068.Ruby_throated_Hummingbird 069.Rufous_Hummingbird 070.Green_Violetear 071.Long_tailed_Jaeger
077.Tropical_Kingbird 079.Belted_Kingfisher 080.Green_Kingfisher 086.Pacific_Loon 090.Red_breasted_Merganser
092.Nighthawk 093.Clark_Nutcracker 094.White_breasted_Nuthatch 095.Baltimore_Oriole 097.Orchard_Oriole
101.White_Pelican 106.Horned_Puffin 107.Common_Raven 108.White_necked_Raven 109.American_Redstart 110.Geococcyx
114.Black_throated_Sparrow 121.Grasshopper_Sparrow 126.Nelson_Sharp_tailed_Sparrow 127.Savannah_Sparrow
130.Tree_Sparrow 134.Cape_Glossy_Starling 135.Bank_Swallow 143.Caspian_Tern 146.Forsters_Tern 147.Least_Tern
150.Sage_Thrasher 159.Black_and_white_Warbler 161.Blue_winged_Warbler 164.Cerulean_Warbler 170.Mourning_Warbler
171.Myrtle_Warbler 172.Nashville_Warbler 177.Prothonotary_Warbler 179.Tennessee_Warbler 184.Louisiana_Waterthrush
185.Bohemian_Waxwing 186.Cedar_Waxwing 188.Pileated_Woodpecker 198.Rock_Wren
"""


class Birds(FineGrained):
    """60 classes of CUB-200-2011."""

    name = "birds"
    summary = "60 kinds of birds of CUB-200-2011, 30 photographs each; in colour, none to train on."
    title = "the set of birds"
    folders = ("photos", "birds", "photos/birds")
    archives = ("birds_144", "birds.")
    classes = tuple(CLASSES.split())
    parts = (classes,)
    layouts = "the folder birds/ with one sub-folder a class, or an archive of it, birds_144.tar,"
    in_imagenet = CUB.in_imagenet

    class Options(FineGrained.Options):
        """Nothing of its own."""

        name: Literal["birds"] = "birds"

    def vocabulary(self, options: Mapping[str, Any]) -> str:
        return CUB.name  # the same classes by the same names


BIRDS = Birds()
